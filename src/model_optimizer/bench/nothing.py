"""A load in which no request completed is an answer, and the answer is no."""

from collections import Counter
from collections.abc import Mapping, Sequence

from model_optimizer.core import LoadPoint, MoptError


class NothingCompleted(MoptError):
    """Raised when not one request completed. `errors` says how many failed of each kind (empty when none was
    made), `examples` what the first failure of a kind said."""

    default_reference = "nothing-completed"

    def __init__(
        self,
        message: str,
        *,
        errors: Mapping[str, int],
        examples: Mapping[str, str],
        cause: tuple[str, ...] = (),
        hint: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.errors = errors
        self.examples = examples


def of_points(origin: str, points: Sequence[LoadPoint]) -> NothingCompleted:
    """From what became of each level."""
    errors: Counter[str] = Counter()
    examples: dict[str, str] = {}
    causes: list[str] = []
    for point in points:
        errors.update(point.errors)
        examples = {**point.error_examples, **examples}
        for kind, count in point.errors.items():
            said = point.error_examples.get(kind)
            causes.append(f"{point.target}: {count} x {kind}, for example: {said}")
        causes += point.notes
    return NothingCompleted(
        f"no request to {origin} completed", errors=dict(errors), examples=examples, cause=tuple(causes)
    )

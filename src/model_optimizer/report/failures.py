"""The error log of a measurement."""

from dataclasses import dataclass

from model_optimizer.core import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of error at one load."""

    load: str
    kind: str
    count: int
    example: str


def failures(found: Measurement) -> list[Failure]:
    return [
        Failure(load=p.target, kind=kind, count=count, example=p.error_examples.get(kind, ""))
        for p in found.points
        for kind, count in p.errors.items()
    ]

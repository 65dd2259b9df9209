"""What a search believes of settings that were not tried: a Gaussian process around the prediction.

The mean is the planner's prediction, trusted as far as trials bear it out. Settings are alike as far as
their knobs are: neighbours on a scale of numbers more than distant ones. Three scales of effects are
weighed by how well they explain what was measured, so that nothing needs to be tuned by hand.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_optimizer.core.study import Knob, Settings

from .space import is_number

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Places = np.ndarray[Any, np.dtype[np.intp]]

NEIGHBOUR = 0.6
"""How alike two values are that stand next to each other on a scale of numbers; others are not alike."""

ACROSS = 0.5
"""How alike a setting stays in its interactions when one knob is turned to an unlike value."""

OFFSET = 3.0
TRUST = (0.0, 0.5, 1.0)
SINGLE = (0.03, 0.1, 0.3)
JOINT = (0.02, 0.1, 0.3)
NOISE = (0.01, 0.05, 0.2)
"""Of one measurement: a quiet machine, a usual one, one that others work on too."""


class Surrogate:
    """Over a fixed list of candidates. Values are logarithms; `predicted` has None where nobody predicts."""

    def __init__(
        self, knobs: Sequence[Knob], candidates: Sequence[Settings], predicted: Sequence[float | None]
    ) -> None:
        import numpy as np

        self._np = np
        known = [p for p in predicted if p is not None]
        middle = sum(known) / len(known) if known else 0.0
        self._predicted = np.array([(p if p is not None else middle) - middle for p in predicted])
        self._trust = TRUST if known and float(self._predicted.std()) > 1e-9 else (0.0,)
        self._codes: Places = np.array(
            [[knob.values.index(c[knob.name]) for knob in knobs] for c in candidates], dtype=np.intp
        ).reshape(len(candidates), len(knobs))
        self._alike = [_likeness(knob, np) for knob in knobs]

    def believe(self, tried: Sequence[int], values: Sequence[float]) -> "tuple[Array, Array]":
        """(mean, standard deviation) of every candidate after what was seen."""
        np = self._np
        n = len(self._codes)
        if not tried:
            trust = self._trust[-1]
            return trust * self._predicted, np.full(n, SINGLE[1] + JOINT[1])
        rows = np.array(tried, dtype=np.intp)
        single, joint = self._kernels(rows)
        seen = np.array(values)
        means: list[Array] = []
        spreads: list[Array] = []
        weights: list[float] = []
        for trust, one, two, noise in itertools.product(self._trust, SINGLE, JOINT, NOISE):
            kernel = OFFSET**2 + one**2 * single + two**2 * joint
            own = kernel[:, rows] + noise**2 * np.eye(len(rows))
            residual = seen - trust * self._predicted[rows]
            factor = np.linalg.cholesky(own)
            half = np.linalg.solve(factor, residual)
            spread_half = np.linalg.solve(factor, kernel)
            mean = trust * self._predicted + spread_half.T @ half
            top = OFFSET**2 + one**2 * len(self._alike) + two**2
            variance = np.maximum(top - (spread_half**2).sum(axis=0), 1e-10)
            evidence = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
            means.append(mean)
            spreads.append(variance)
            weights.append(evidence)
        share = np.exp(np.array(weights) - max(weights))
        share = share / share.sum()
        stacked = np.array(means)
        mean = share @ stacked
        variance = share @ (np.array(spreads) + stacked**2) - mean**2
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def _kernels(self, rows: "Places") -> "tuple[Array, Array]":
        """(sum over knobs, product over knobs) of likeness, tried x all candidates."""
        np = self._np
        n = len(self._codes)
        single, joint = np.zeros((len(rows), n)), np.ones((len(rows), n))
        for j, alike in enumerate(self._alike):
            pairs = alike[self._codes[rows, j][:, None], self._codes[None, :, j]]
            single += pairs
            joint *= ACROSS + (1 - ACROSS) * pairs
        return single, joint


def _likeness(knob: Knob, np: Any) -> "Array":
    """Between the values of one knob: 1 for equal ones, falling along a scale of numbers."""
    found = np.eye(len(knob.values))
    numbers = [i for i, value in enumerate(knob.values) if is_number(value)]
    for (rank_a, a), (rank_b, b) in itertools.combinations(enumerate(numbers), 2):
        found[a, b] = found[b, a] = NEIGHBOUR ** (rank_b - rank_a)
    return found


def improvement(mean: "Array", spread: "Array", best: float) -> "Array":
    """Expected improvement over `best`, in the unit of the mean."""
    import numpy as np

    z = (mean - best) / spread
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return (mean - best) * below + spread * density


def effects(
    mean: Sequence[float], candidates: Sequence[Settings], of: Settings, back: Mapping[str, str]
) -> dict[str, float]:
    """What the belief says is lost when each setting of `back` is put back, largest loss first."""
    place = {tuple(sorted(c.items())): i for i, c in enumerate(candidates)}
    whole = mean[place[tuple(sorted(of.items()))]]
    lost: dict[str, float] = {}
    for name, value in back.items():
        other = place.get(tuple(sorted({**of, name: value}.items())))
        lost[name] = whole - mean[other] if other is not None else 0.0
    return dict(sorted(lost.items(), key=lambda item: -item[1]))

"""The proposer behind Optuna's ask and tell: predictions first, then what trials have taught.

Optuna keeps the trials (in SQLite, or any database that SQLAlchemy reaches) and hands them to the sampler;
which settings come next is decided here.
"""

import math
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from model_optimizer.core.study import Knob, Settings

from .surrogate import Surrogate, improvement

SIGNAL, INTERRUPTED = "signal", "interrupted"
"""User attributes of a trial: the value that is learned from; that it was broken off, which says nothing."""

FAILED_BELOW = 1.0
"""A trial that failed counts as this much (in logarithm) under the worst that was seen."""

MEASURED_ALIKE = 0.01


class PriorSampler(BaseSampler):
    """Proposes one of `candidates` by expected improvement. Spaces that are not of these knobs are sampled
    at random, as any sampler must be able to.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        candidates: Sequence[Settings],
        predicted: Sequence[float | None],
        *,
        priors: Sequence[tuple[Settings, float]] = (),
        seed: int = 0,
    ) -> None:
        """`predicted` are logarithms of what each candidate is worth; `priors` are what earlier studies saw,
        as logarithms beside the default's: they correct the predictions, which trials then bear out or not.
        """
        self._knobs = tuple(knobs)
        self._candidates = list(candidates)
        self._place = {_key(c): i for i, c in enumerate(self._candidates)}
        self._surrogate = Surrogate(knobs, candidates, predicted)
        known = {i: v for s, v in priors if (i := self._place.get(_key(s))) is not None}
        if known:
            start = self._place.get(_key({knob.name: knob.default for knob in knobs}))
            known = known if start is None else {start: 0.0, **known}
            corrected, _ = self._surrogate.believe(list(known), list(known.values()))
            self._surrogate = Surrogate(knobs, candidates, [float(value) for value in corrected])
        self._random = RandomSampler(seed=seed)

    def reseed_rng(self) -> None:
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del study, trial
        return {knob.name: CategoricalDistribution(knob.values) for knob in self._knobs}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, str]:
        del trial
        self._raise_error_if_multi_objective(study)
        if not search_space or not self._candidates:
            return {}
        chosen = self.propose(study.get_trials(deepcopy=False))
        return dict(self._candidates[chosen]) if chosen is not None else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def propose(self, trials: Sequence[FrozenTrial]) -> int | None:
        """The candidate that promises most; None when all were tried."""
        rows, values, taken, pending = self._seen(trials)
        here = [value for place, value in zip(rows, values, strict=True) if place in taken]
        left = [i for i in range(len(self._candidates)) if i not in taken]
        if not left:
            return None
        mean, spread = self._surrogate.believe(rows, values)
        if pending and (rows or len(pending) > 1):
            # What runs elsewhere is taken to turn out as believed, so that it is not asked for twice.
            rows, values = rows + pending, values + [float(mean[i]) for i in pending]
            mean, spread = self._surrogate.believe(rows, values)
        best = max(here) if here else float(mean.max())
        gain = improvement(mean, spread, best + MEASURED_ALIKE)
        return max(left, key=lambda i: (float(gain[i]), float(mean[i]), -i))

    def believed(self, trials: Sequence[FrozenTrial]) -> list[float]:
        """The mean of every candidate after these trials."""
        rows, values, _, _ = self._seen(trials)
        return [float(m) for m in self._surrogate.believe(rows, values)[0]]

    def _seen(self, trials: Sequence[FrozenTrial]) -> tuple[list[int], list[float], set[int], list[int]]:
        good: dict[int, list[float]] = {}
        bad: set[int] = set()
        pending: list[int] = []
        for trial in trials:
            place = self._place.get(_key(trial.params))
            if place is None or trial.user_attrs.get(INTERRUPTED):
                continue
            signal = trial.user_attrs.get(SIGNAL)
            if trial.state == TrialState.RUNNING:
                pending.append(place)
            elif isinstance(signal, float) and math.isfinite(signal):
                good.setdefault(place, []).append(signal)
            elif trial.state.is_finished():
                bad.add(place)
        rows = list(good)
        values = [sum(good[i]) / len(good[i]) for i in rows]
        floor = min(values, default=0.0) - FAILED_BELOW
        taken = {*good, *bad, *pending}
        failed = sorted(bad - set(good))
        return rows + failed, values + [floor] * len(failed), taken, pending


def _key(settings: Settings) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(settings.items()))

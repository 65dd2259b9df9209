"""The sampler passes Optuna's own suite, and finds what is best where predictions help and where they lie."""

import math
import random
from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, SingleOnlySamplerTestCase
from tests.tune.grid import KNOBS, candidates, worth

from model_optimizer.core.study import Knob
from model_optimizer.tune import space
from model_optimizer.tune.sampler import INTERRUPTED, SIGNAL, PriorSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def _knob(name: str, *values: str) -> Knob:
    return Knob(name=name, values=values, default=values[0], because="", source="")


class TestOptunaBasic(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: PriorSampler((), (), ())


class TestOptunaSingle(SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: PriorSampler((), (), ())


def trials_to(share: float, seed: int, predict: Callable[[dict[str, str]], float | None]) -> int:
    """Trials until a value within `share` of the best was measured; the default counts as the first."""
    found = candidates()
    draw = random.Random(seed)
    best = max(worth(c) for c in found)
    sampler = PriorSampler(KNOBS, found, [predict(c) for c in found], seed=seed)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.enqueue_trial({k.name: k.default for k in KNOBS})
    for number in range(1, len(found) + 1):
        trial = study.ask()
        chosen = {k.name: trial.suggest_categorical(k.name, k.values) for k in KNOBS}
        value = worth(chosen)
        trial.set_user_attr(SIGNAL, math.log(value) + draw.gauss(0, 0.01))
        study.tell(trial, value)
        if value >= share * best:
            return number
    raise AssertionError("the whole space holds the best")


def middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def random_trials(share: float, seed: int) -> int:
    found = candidates()
    random.Random(seed).shuffle(found)
    best = max(worth(c) for c in found)
    return next(i + 1 for i, c in enumerate(found) if worth(c) >= share * best)


def test_good_predictions_lead_to_the_best_at_once() -> None:
    assert max(trials_to(0.97, seed, lambda c: math.log(worth(c))) for seed in range(3)) <= 3


def test_without_predictions_it_needs_half_of_what_chance_needs() -> None:
    mine = middle([trials_to(0.97, seed, lambda c: None) for seed in range(9)])
    assert mine <= middle([random_trials(0.97, seed) for seed in range(101)]) / 2


def test_predictions_that_are_noise_are_soon_distrusted() -> None:
    def lie(settings: dict[str, str]) -> float:
        return random.Random(str(sorted(settings.items()))).gauss(0, 0.5)

    mine = middle([trials_to(0.97, seed, lie) for seed in range(9)])
    assert mine <= middle([random_trials(0.97, seed) for seed in range(101)])


def test_nothing_is_proposed_twice_not_even_while_it_runs() -> None:
    knobs = (_knob("a", "1", "2"), _knob("b", "x", "y"))
    found, _, _ = space.combinations(knobs, lambda s: None, seed=0)
    study = optuna.create_study(sampler=PriorSampler(knobs, found, [None] * 4), direction="maximize")
    asked: list[dict[str, str]] = []
    for _ in range(4):
        trial = study.ask()
        asked.append({k.name: trial.suggest_categorical(k.name, k.values) for k in knobs})
    assert len({tuple(a.items()) for a in asked}) == 4


def test_a_trial_that_was_interrupted_is_open_again() -> None:
    knobs = (_knob("a", "1", "2"),)
    found, _, _ = space.combinations(knobs, lambda s: None, seed=0)
    sampler = PriorSampler(knobs, found, [0.0, 1.0])
    study = optuna.create_study(sampler=sampler, direction="maximize")
    trial = study.ask()
    assert trial.suggest_categorical("a", ("1", "2")) == "2"
    trial.set_user_attr(INTERRUPTED, True)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert study.ask().suggest_categorical("a", ("1", "2")) == "2"


def test_neighbours_of_a_failure_are_avoided() -> None:
    knobs = (_knob("tokens", "1", "2", "4", "8"), _knob("x", "a", "b"))
    found, _, _ = space.combinations(knobs, lambda s: None, seed=0)
    sampler = PriorSampler(knobs, found, [None] * len(found))
    study = optuna.create_study(sampler=sampler, direction="maximize")

    def tell(tokens: str, x: str, signal: float | None) -> None:
        study.enqueue_trial({"tokens": tokens, "x": x})
        trial = study.ask()
        for knob in knobs:
            trial.suggest_categorical(knob.name, knob.values)
        if signal is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            trial.set_user_attr(SIGNAL, signal)
            study.tell(trial, signal)

    tell("1", "a", 0.0)
    tell("2", "a", 0.02)
    tell("8", "a", None)
    trial = study.ask()
    assert trial.suggest_categorical("tokens", knobs[0].values) != "8"

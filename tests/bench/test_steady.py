"""Where a load has become steady, and whether it stayed so."""

import random

import pytest

from model_optimizer.bench.steady import judge


def noise(count: int, mean: float, seed: int = 0) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(mean, mean * 0.05) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_steady_and_nothing_is_left_out(seed: int) -> None:
    found = judge(noise(400, 100, seed))
    assert (found.skip, found.steady) == (0, True)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_start_is_left_out(seed: int) -> None:
    found = judge(noise(40, 300, seed) + noise(400, 100, seed + 100))
    assert 40 <= found.skip <= 60
    assert found.steady is True


@pytest.mark.parametrize("seed", range(20))
def test_a_growing_queue_is_not_steady(seed: int) -> None:
    found = judge([value + n for n, value in enumerate(noise(400, 100, seed))])
    assert found.steady is False
    assert found.drift is not None and found.drift > 0.3
    assert "rose" in found.because


def test_few_requests_tell_nothing() -> None:
    assert judge(noise(99, 100)).steady is None


def test_heavy_tails_are_no_drift() -> None:
    dice = random.Random(3)
    assert judge([dice.lognormvariate(4, 1) for _ in range(1000)]).steady is True


def test_equal_values() -> None:
    assert (judge([5.0] * 200).steady, judge([5.0] * 200).skip) == (True, 0)

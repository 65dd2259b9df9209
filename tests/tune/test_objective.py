"""What a measurement is worth: goodput, energy under the SLO, and a signal that goes on below zero goodput."""

import math
from dataclasses import replace

import pytest

from model_optimizer.core import LoadPoint, Percentiles, Slo
from model_optimizer.tune import objective
from model_optimizer.tune.objective import Aim

SLO = Slo(ttft_ms=1000, tpot_ms=25)
POINT = LoadPoint(
    target="concurrency 8",
    completed=100,
    failed=0,
    window_s=10.0,
    requests_per_s=10.0,
    output_tokens_per_s=1280.0,
    goodput_requests_per_s=9.0,
    attainment=0.9,
    ttft_ms=Percentiles(p50=100, p99=900),
    tpot_ms=Percentiles(p50=10, p99=30),
    energy_j=6400.0,
)


def worth(*points: LoadPoint, aim: str = "goodput", price: float | None = None) -> objective.Score:
    found = objective.score(points, Aim(objective=aim, slo=SLO, cost_per_hour=price))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_goodput_is_the_best_of_the_levels() -> None:
    crowded = replace(POINT, target="concurrency 64", requests_per_s=20.0, attainment=0.1)
    found = worth(POINT, crowded)
    assert (found.value, found.level) == (9.0, "concurrency 8")
    assert found.signal == pytest.approx(math.log(9.0))


def test_energy_counts_only_within_the_limits() -> None:
    assert worth(POINT, aim="energy").value == 0
    held = replace(POINT, attainment=1.0)
    assert worth(held, aim="energy").value == pytest.approx(1280 * 10 / 6400)


def test_cost_is_of_a_million_tokens() -> None:
    found = worth(POINT, aim="cost", price=4.608)
    assert found.cost_per_million == pytest.approx(1.0)
    assert found.value == pytest.approx(9.0 / 4.608)


def test_without_goodput_the_signal_still_tells_near_from_far() -> None:
    none = replace(POINT, goodput_requests_per_s=0.0, attainment=0.0)
    near = worth(replace(none, tpot_ms=Percentiles(p50=26, p99=30)))
    far = worth(replace(none, tpot_ms=Percentiles(p50=80, p99=90)))
    assert near.value == far.value == 0
    assert near.signal > far.signal


def test_nothing_measured_has_no_worth() -> None:
    assert objective.score((replace(POINT, requests_per_s=None),), Aim(objective="goodput", slo=SLO)) is None
    assert objective.score((), Aim(objective="goodput", slo=SLO)) is None


def test_pareto_keeps_what_nothing_beats() -> None:
    fast = worth(POINT)
    frugal = worth(replace(POINT, requests_per_s=5.0, energy_j=1000.0))
    poor = worth(replace(POINT, requests_per_s=4.0, energy_j=9000.0))
    assert objective.pareto([(1, fast), (2, frugal), (3, poor)]) == (1, 2)

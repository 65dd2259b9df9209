"""What a reader is told of loads that are too short, and of a KV cache that is too small."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tune.test_run import PLAN, point

from model_optimizer.core import LoadPoint, Percentiles, codec
from model_optimizer.core.study import FinalRun, Study, Trial
from model_optimizer.tune.cautions import cautions, waves

EVIDENCE = Path(__file__).parents[2] / "evidence" / "tune-h200"


def loaded(longest_ms: float | None, *, clients: int | None = 8, seconds: float = 6.0) -> LoadPoint:
    times = Percentiles(p50=10.0, p90=20.0, p99=longest_ms, mean=12.0)
    return replace(point(5.0), concurrency=clients, window_s=seconds, e2e_ms=times, target="concurrency 8")


def study(*trials: Trial, runs: tuple[FinalRun, ...] = ()) -> Study:
    return Study(
        plan=PLAN,
        objective="goodput",
        levels=(8.0,),
        knobs=(),
        combinations=0,
        trials=trials,
        final_runs=runs,
    )


def trial(*points: LoadPoint, **given: object) -> Trial:
    base: dict[str, object] = {"number": 0, "state": "measured", "settings": {}, "proposed_by": "x"}
    return Trial(**{**base, "points": points, **given})  # type: ignore[arg-type]


def test_a_load_that_holds_few_answers_after_each_other_is_told_with_the_time_that_would_do() -> None:
    (text,) = cautions(study(trial(loaded(1000.0), loaded(4000.0))))
    assert "6 s holds only 1.5" in text and "`--for 12s`" in text and "concurrency 8" in text


def test_three_waves_are_enough_and_an_open_loop_has_none() -> None:
    assert cautions(study(trial(loaded(2000.0)))) == ()
    assert cautions(study(trial(loaded(4000.0, clients=None)))) == ()
    assert cautions(study(trial(loaded(4000.0), state="aborted"))) == ()
    assert waves(loaded(None)) == pytest.approx(300)


def test_runs_of_the_second_look_count_too_and_name_their_shape() -> None:
    run = FinalRun(turn=0, settings={}, value=1.0, points=(loaded(4000.0),), shapes=("mixed",))
    (text,) = cautions(study(trial(loaded(1000.0)), runs=(run,)))
    assert "mixed" in text


def test_a_shared_cache_that_is_too_small_is_told_and_one_of_its_own_is_its_worth() -> None:
    beside = {"kv-cache-memory-bytes": "1"}
    alone = FinalRun(turn=0, settings={}, value=1.0, preemptions=7)
    fine = FinalRun(turn=1, settings={}, value=1.0, preemptions=0, beside=beside)
    hit = FinalRun(turn=2, settings={}, value=1.0, preemptions=5, beside=beside)
    assert cautions(study(runs=(alone, fine))) == ()
    (text,) = cautions(study(runs=(alone, fine, hit)))
    assert text.startswith("5 requests") and "1 of 2 loads" in text


def test_the_recorded_study_whose_rates_came_in_steps_is_told_so() -> None:
    """Answers of one fixed length under loads of 4 s: rates came in steps of 16 a second."""
    found = codec.loads(gzip.decompress((EVIDENCE / "study-2026-11-30.json.gz").read_bytes()), Study)
    (text,) = cautions(found)
    assert "one after the other" in text

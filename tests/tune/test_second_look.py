"""The second look with servers that stand by each other: who is compared with whom, what a pause and a loss do."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tune.grid import KNOBS, worth
from tests.tune.test_run import DEFAULT, PLAN, Engine, point
from tests.tune.test_run import question as full_question

from model_optimizer.core import HostError, LoadPoint, Plan, Slo
from model_optimizer.core.study import Study
from model_optimizer.tune import Budget, Functions, Order, Outcome, Shared, TuneQuestion, tune
from model_optimizer.tune.objective import Aim, best_levels, score
from model_optimizer.tune.turns import Measure


def question(**given: object) -> TuneQuestion:
    return full_question(**{"trials": 8, **given})


class Bench:
    """Servers that stand by each other, from an engine that is a function. `lost` arms give one failure."""

    def __init__(self, engine: Engine, lost: Sequence[str] = ()) -> None:
        self.engine, self.lost = engine, lost
        self.openings: list[list[dict[str, str]]] = []
        self.turns: list[Order] = []

    def share(self, orders: Sequence[Order]) -> Shared | str:
        del orders
        return Shared(open=self.open, because="as a test wants it")

    @contextmanager
    def open(self, orders: Sequence[Order]) -> Generator[Measure]:
        self.openings.append([dict(order.settings) for order in orders])
        told: set[str] = set()

        def measure(order: Order) -> Outcome | None:
            self.turns.append(order)
            cache = order.settings["cache"]
            if cache in self.lost:
                return None if cache in told else (told.add(cache), _died())[1]
            ((_, outcome),) = self.engine([order])
            return replace(outcome, beside={"share": "0.2"})

        yield measure


def _died() -> Outcome:
    return Outcome(state="failed", because="it died", reference="died")


def search(
    folder: Path,
    engine: Engine,
    asked: TuneQuestion | None = None,
    study: Study | None = None,
    **given: object,
) -> Study:
    asked = asked or question()
    base = {
        "refuse": lambda plan: None,
        "predict": lambda plan: None,
        "execute": engine,
        "now": lambda: 0.0,
        "saved": lambda study: None,
    }
    fresh = study or Study(plan=PLAN, objective="goodput", levels=(8.0,), knobs=asked.knobs, combinations=0)
    return tune(asked, Functions(**{**base, **given}), folder, fresh, lambda text, share: None)  # type: ignore[arg-type]


def test_every_arm_is_started_once_and_takes_its_turns(tmp_path: Path) -> None:
    engine = Engine()
    bench = Bench(engine)
    study = search(tmp_path, engine, share=bench.share)
    assert study.winner is not None
    assert len(bench.openings) == 1 and len(bench.openings[0]) == len({str(a) for a in bench.openings[0]})
    assert all(run.resident and run.beside for run in study.final_runs)
    assert all(duel.resident for duel in study.finals)
    assert all(part.verdict.resident for part in study.contributions)
    arms = len(bench.openings[0])
    rounds = [
        [str(sorted(o.settings.items())) for o in bench.turns[i : i + arms]]
        for i in range(0, len(bench.turns), arms)
    ]
    assert all(len(set(seen)) == arms for seen in rounds)
    assert {o.round for o in bench.turns} == {1, 2, 3}
    assert any("as a test wants it" in note for note in study.notes)


def test_who_cannot_share_starts_for_every_run_and_says_why(tmp_path: Path) -> None:
    study = search(tmp_path, Engine(), share=lambda orders: "no room")
    assert study.winner is not None and not any(run.resident for run in study.final_runs)
    assert any("no room" in note for note in study.notes)


def test_residents_that_were_demanded_are_an_error_when_they_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="stand by each other"):
        search(tmp_path, Engine(), question(second_look="resident"), share=lambda orders: "no room")


def test_restart_is_restart(tmp_path: Path) -> None:
    engine = Engine()
    bench = Bench(engine)
    study = search(tmp_path, engine, question(second_look="restart"), share=bench.share)
    assert not bench.openings and study.final_runs and not any(run.resident for run in study.final_runs)


def test_an_arm_that_is_worth_its_memory_is_compared_by_starts_alone(tmp_path: Path) -> None:
    engine = Engine()
    bench = Bench(engine)

    def apart(plan: Plan) -> str | None:
        return "memory" if plan.setting("cache") == "fp8" else None

    study = search(tmp_path, engine, question(trials=14), share=bench.share, apart=apart)
    assert all(settings["cache"] == "auto" for opening in bench.openings for settings in opening)
    for duel in (*study.finals, *(part.verdict for part in study.contributions)):
        fp8 = "fp8" in (duel.a["cache"], duel.b["cache"])
        assert duel.resident is not fp8
        assert len(duel.a_values) == len(duel.b_values) == 3
    assert any("memory" in note for note in study.notes)


def test_an_arm_that_is_lost_loses_itself_and_is_tried_again_later(tmp_path: Path) -> None:
    engine = Engine()
    asked = question(finalists=2, trials=14)
    kept: list[Study] = []
    bench = Bench(engine, lost=["fp8"])
    study = search(tmp_path, engine, asked, share=bench.share, saved=kept.append)
    fp8 = [run for run in study.final_runs if run.settings["cache"] == "fp8"]
    assert fp8 and all(run.value is None and run.because == "it died" for run in fp8)
    auto = [run for run in study.final_runs if run.settings["cache"] == "auto"]
    assert len(auto) % 3 == 0 and all(run.value is not None for run in auto)
    again = Bench(engine)
    after = search(tmp_path, engine, asked, study=study, share=again.share)
    assert again.openings and all(s["cache"] == "fp8" for s in again.openings[0])
    turns = [run.turn for run in after.final_runs]
    assert len(turns) == len(set(turns))
    assert {run.sitting for run in after.final_runs} == {1, 2}


def test_a_default_that_is_lost_starts_all_of_them_again_alone(tmp_path: Path) -> None:
    engine = Engine()
    bench = Bench(engine, lost=[DEFAULT["cache"]])
    study = search(tmp_path, engine, share=bench.share)
    assert any("the default gave no value" in note for note in study.notes)
    assert study.finals and not any(duel.resident for duel in study.finals)


def test_no_turn_is_taken_twice_over_several_sittings(tmp_path: Path) -> None:
    engine = Engine()
    study: Study | None = None
    seen: list[int] = []
    for _ in range(12):
        bench = Bench(engine)
        left = iter([1e9] * 12 + [0.0] * 99) if study is None else iter([1e9] * 6 + [0.0] * 99)
        budget = Budget(left=lambda left=left: next(left), now=lambda: 0.0)
        study = search(tmp_path, engine, study=study, share=bench.share, budget=budget)
        seen += [order.number for order in bench.turns]
        if not study.paused:
            break
        assert study.winner is None
    assert study is not None and study.paused is None and study.winner is not None
    assert sorted(seen) == list(range(len(study.final_runs)))
    assert max(run.sitting for run in study.final_runs) > 1


def test_nothing_is_begun_that_would_not_end_in_time(tmp_path: Path) -> None:
    """A trial took 10 s: with 11 left and a fifth of room, the next is not begun."""
    clock = [0.0]

    class Slow(Engine):
        def __call__(self, orders: Sequence[Order]):  # type: ignore[no-untyped-def]
            for pair in super().__call__(orders):
                clock[0] += 10.0
                yield pair

    engine = Slow()
    budget = Budget(left=lambda: 31.0 - clock[0], now=lambda: clock[0])
    study = search(tmp_path, engine, budget=budget)
    assert study.paused is not None and len(study.trials) == 2
    assert search(tmp_path, Engine(), study=study).paused is None


# -- the loads of an arm


def loaded(level: float, rate: float) -> LoadPoint:
    return replace(point(rate), target=f"concurrency {level:g}", concurrency=int(level))


class Levels(Engine):
    """Half as good at twice the load, so that 8 is the best level of all, 4 of those with 8 sequences."""

    def __call__(self, orders: Sequence[Order]):  # type: ignore[no-untyped-def]
        for order, outcome in super().__call__(orders):
            rate = outcome.points[0].requests_per_s or 0.0
            best = 4.0 if order.settings["seqs"] == "32" else 8.0
            levels = order.levels.get("", (4.0, 8.0, 16.0))
            points = tuple(loaded(level, rate if level == best else rate / 2) for level in levels)
            yield order, replace(outcome, points=points)


def test_arms_are_loaded_where_they_were_best(tmp_path: Path) -> None:
    engine = Levels()
    bench = Bench(engine)
    study = search(tmp_path, engine, question(levels=(4.0, 8.0, 16.0)), share=bench.share)
    tried = [dict(t.settings) for t in study.trials if t.state == "measured"]
    for order in bench.turns:
        best = 4.0 if order.settings["seqs"] == "32" else 8.0
        if dict(order.settings) in tried:
            assert order.levels == {"": (best,)}
        elif order.round == 1:
            assert best in order.levels[""]
        else:
            assert order.levels == {"": (best,)}


# -- several shapes of load


def test_several_shapes_are_joined_by_their_mean_or_by_the_worst_ratio() -> None:
    points, shapes = [loaded(8, 4.0), loaded(8, 9.0)], ["a", "b"]
    base = {"a": 8.0, "b": 4.5}
    mean = score(points, Aim(objective="goodput", slo=Slo()), shapes, base)
    worst = score(points, Aim(objective="goodput", slo=Slo(), over="worst"), shapes, base)
    assert mean is not None and mean.value == pytest.approx(6.0)
    assert worst is not None and worst.value == pytest.approx(0.5 * 6.0)
    assert worst.shapes == mean.shapes == {"a": 4.0, "b": 9.0}
    default = score(
        [loaded(8, 8.0), loaded(8, 4.5)], Aim(objective="goodput", slo=Slo(), over="worst"), shapes
    )
    assert default is not None and default.value == pytest.approx(6.0)
    assert score(points[:1], Aim(objective="goodput", slo=Slo()), ["a"], base) is not None


def test_a_shape_that_gave_nothing_makes_the_whole_worth_nothing() -> None:
    nothing = replace(loaded(8, 4.0), completed=0, requests_per_s=None)
    assert score([loaded(8, 4.0), nothing], Aim(objective="goodput", slo=Slo()), ["a", "b"]) is None


def test_the_best_level_is_said_for_each_shape() -> None:
    points = [loaded(8, 4.0), loaded(16, 5.0), loaded(8, 9.0), loaded(16, 1.0)]
    aim = Aim(objective="goodput", slo=Slo())
    assert best_levels(points, aim, ["a", "a", "b", "b"]) == {"a": 16.0, "b": 8.0}
    assert best_levels(points[:2], aim) == {"": 16.0}


def test_the_first_batch_holds_the_default_when_trials_start_side_by_side(tmp_path: Path) -> None:
    batches: list[list[dict[str, str]]] = []

    class Many(Engine):
        def __call__(self, orders: Sequence[Order]):  # type: ignore[no-untyped-def]
            if not orders[0].thorough:
                batches.append([dict(o.settings) for o in orders])
            yield from super().__call__(orders)

    study = search(tmp_path, Many(), question(trials=7), workers=3, at_once=True)
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert batches[0][0] == DEFAULT
    assert len({str(t.settings) for t in study.trials}) == 7
    assert worth(batches[0][0]) > 0 and len(KNOBS) == 4

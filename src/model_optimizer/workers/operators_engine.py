"""The first operator that an engine computes differently from the graph it is built from.

Runs in the environment of TensorRT or TensorRT for RTX, on the GPU. Request: `graph` (path), `wanted` (folder
of operators_wanted.py), `flavour` (rtx or tensorrt), `scheme`, `limits` {own, place, answer}, `per_run`,
`out` (an empty folder for the first bad operator), `version` (of the library that built the engine, or null:
what another version builds from the same graph says nothing of that engine, so it is refused). Result: a row
as those of operators_compare.py, with `markable` (values that can be marked) and `engines` (how many were
built).

The answers are compared first with nothing marked, as they are served. Then values are marked, a few an
engine, and split as in a graph; a suspicious place is built once more alone on the reference's inputs.
Where a place is right alone, and what is marked before it is right too, a fusion that marking prevents is to
blame, and the row says so.
"""

import json
import math
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail, main, progress
from _engine_device import Driver
from _engine_run import Built, EngineGraph
from _operators_cut import write_cut
from _operators_search import Found, Pairs, Search, apart

EXACT = ("fp32",)


def job(request: dict[str, Any]) -> dict[str, Any]:
    import tensorrt_build

    library = tensorrt_build.load_library(request["flavour"])
    require_version(request.get("version"), library.__version__)
    return look(request, Built(library, Driver()))


def require_version(built: str | None, installed: str) -> None:
    if built not in (None, installed):
        fail(
            "engine-of-another-version",
            f"the engine is of version {built}, {installed} is installed",
            ["an engine runs with the version that built it"],
            ["build it again here with `mopt convert`"],
        )


def look(request: Mapping[str, Any], built: Built) -> dict[str, Any]:
    """The row; `built` is handed over so that a test can hand a machine without a GPU another one."""
    import numpy

    graph = EngineGraph(Path(request["graph"]), built)
    folder, limit = Path(request["wanted"]), request["limits"]
    feed = dict(numpy.load(folder / "feed.npz", allow_pickle=False))
    pairs = _pairs(folder / "wanted", graph.markable() | set(graph.outputs))
    progress("the engine's answers", 0.1)
    answers = graph.values(feed, graph.outputs)
    wanted = pairs.ask(graph.outputs)
    added = max((apart(answers[name], wanted[name]) for name in graph.outputs), default=0.0)
    exact = request["scheme"] in EXACT
    row = {
        "name": "engine", "scheme": request["scheme"], "truth": None, "added": _number(added),
        "places": len(pairs.keys), "looked": 0, "median_own": None, "shortest": None, "suspects": [],
    }  # fmt: skip
    if added > limit["answer"]:
        progress("marking values", 0.3)
        search = Search(graph, pairs, feed, per_run=request["per_run"], own_limit=limit["own"])
        one = search.first(limit["place"] if exact else limit["answer"])
        row["suspects"] = [_about(graph, one, added, limit)]
        row["looked"] = len(search.known) + search.alone
        if one is not None:
            about = row["suspects"][0]
            write_cut(
                Path(request["out"]),
                {"name": "engine", "scheme": request["scheme"], "graph": graph},
                {"about": about, "found": one},
            )
    return {"row": row, "engines": built.engines}


def _pairs(folder: Path, markable: set[str]) -> Pairs:
    """Values of the graph, by their own names, with what ONNX Runtime computed there."""
    import numpy

    names: list[str] = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    files = {name: folder / f"{number}.npy" for number, name in enumerate(names)}

    def ask(asked: Sequence[Hashable]) -> Mapping[Hashable, Any]:
        return {name: numpy.load(files[str(name)], allow_pickle=False) for name in asked}

    return Pairs({name: name for name in names if name in markable}, ask)


def _about(graph: EngineGraph, one: Found | None, added: float, limit: Mapping[str, float]) -> dict[str, Any]:
    if one is None:  # answers that no module gives: nothing before them can be held against anything
        return {
            "node": None, "operator": "an answer", "module": "", "own": _number(added), "total": None,
            "own_limit": limit["answer"], "because": "every value before it that can be marked is right",
        }  # fmt: skip
    because = None
    if one.own <= limit["own"]:
        because = (
            "alone it is right, and so is what is marked before it: a fusion that marking prevents is wrong"
        )
    return {
        **graph.describe(graph.maker[one.value]), "own": _number(one.own), "total": _number(one.total),
        "own_limit": limit["own"], "because": because,
    }  # fmt: skip


def _number(value: float) -> float | None:
    """Infinity is no JSON."""
    return None if math.isnan(value) else min(value, 1e300)


if __name__ == "__main__":
    main(job)

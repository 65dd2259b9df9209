"""Write down what a graph computes in ONNX Runtime at one input, for an engine to be held against.

Request: `reference` (folder of the checkpoint), `task`, `graph` (path), `per_run`, `out` (folder). `out` gets
feed.npz and wanted/N.npy with names.json. Values that leave a PyTorch module are kept, and the answers; each
file is one value, so that whoever reads them holds few at a time. Result: {values, size}.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import main, progress
from _operators_graph import Graph, RunFailed
from operators_compare import make_feeds


def job(request: dict[str, Any]) -> dict[str, Any]:
    import numpy

    graph, out = Graph(Path(request["graph"])), Path(request["out"])
    feed = make_feeds(Path(request["reference"]), graph, {"task": request["task"]})[1]
    numpy.savez(out / "feed.npz", **feed)
    (out / "wanted").mkdir()
    asked = borders(graph)
    names: list[str] = []
    for start in range(0, len(asked), request["per_run"]):
        progress("values in ONNX Runtime", start / len(asked))
        for name, array in _values(graph, feed, asked[start : start + request["per_run"]]).items():
            if array.dtype.kind == "f":
                numpy.save(out / "wanted" / f"{len(names)}.npy", array)
                names.append(name)
    (out / "wanted" / "names.json").write_text(json.dumps(names), encoding="utf-8")
    return {
        "values": len(names),
        "size": " x ".join(map(str, next(iter(feed.values())).shape)),
    }


def _values(graph: Graph, feed: Any, names: list[str]) -> dict[str, Any]:
    """All of them; one by one where some cannot be outputs."""
    try:
        return graph.values(feed, names)
    except RunFailed:
        if len(names) == 1:
            return {}
        return {key: array for name in names for key, array in _values(graph, feed, [name]).items()}


def borders(graph: Graph) -> list[str]:
    """Values that another module reads than the one they were made in, in the graph's order."""
    found: list[str] = []
    for number, node in enumerate(graph.nodes):
        for value in node.output:
            readers = graph.readers.get(value, ())
            leaves = any(graph.module(reader) != graph.module(number) for reader in readers)
            if value and (leaves or value in graph.outputs):
                found.append(value)
    return found


if __name__ == "__main__":
    main(job)

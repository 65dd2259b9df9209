"""The first bad operator in a folder of its own: a small graph, its inputs, what is wanted, a script."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _operators_graph import Graph

SCRIPT = '''"""Run one operator alone on the reference's inputs: {what}.

    python run.py        needs numpy and onnxruntime
"""

from pathlib import Path

import numpy
import onnxruntime

here = Path(__file__).parent
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(here / "operator.onnx", options, providers=["CPUExecutionProvider"])
inputs = dict(numpy.load(here / "inputs.npz", allow_pickle=False))
(got,) = session.run(None, inputs)
if (here / "wanted.npz").exists():
    wanted = numpy.load(here / "wanted.npz", allow_pickle=False)["wanted"].astype("float64")
    kept = abs(wanted) < 1e30
    error = numpy.linalg.norm((got - wanted)[kept]) / numpy.linalg.norm(wanted[kept])
    print(f"difference: {{error:.3g}} of the length of what is wanted")
'''


def write_cut(out: Path, stage: Mapping[str, Any], bad: Mapping[str, Any]) -> None:
    """operator.onnx, inputs.npz, wanted.npz, about.json and run.py; no graph where no node is known."""
    import numpy
    import onnx

    about, found, graph = bad["about"], bad["found"], stage["graph"]
    (out / "about.json").write_text(
        json.dumps({"stage": stage["name"], "scheme": stage["scheme"], **about}, indent=2) + "\n",
        encoding="utf-8",
    )
    if found is None:
        return
    assert isinstance(graph, Graph)
    onnx.save(graph.cut(found.piece, found.inputs, [found.value]), str(out / "operator.onnx"))
    numpy.savez(out / "inputs.npz", **found.inputs)
    if found.wanted is not None:
        numpy.savez(out / "wanted.npz", wanted=found.wanted)
    what = f"{about['operator']} of {about['module'] or 'no module'}, stage {stage['name']}"
    (out / "run.py").write_text(SCRIPT.format(what=what), encoding="utf-8")

"""Looks into engines of a stand-in for TensorRT; run by the onnx environment.

    python look_into_engine.py WORKERS FAKES CHECKPOINT GRAPH OUT

OUT/answers.json gets what operators_engine.py says of a right engine, of one with a wrong product, and of one
that is wrong only while none of its values is marked.
"""

import json
import sys
from pathlib import Path

WORKERS, FAKES, CHECKPOINT, GRAPH, OUT = sys.argv[1:6]
sys.path += [WORKERS, FAKES]
import _engine_run  # noqa: E402
import fake_tensorrt  # noqa: E402
import operators_engine  # noqa: E402
import operators_wanted  # noqa: E402

NODE = "node_linear_9"
FAULTS: dict[str, dict[str, str]] = {"right": {}, "node": {"node": NODE}, "fusion": {"fusion": NODE}}

wanted = Path(OUT) / "values"
wanted.mkdir(parents=True)
request = {"reference": CHECKPOINT, "task": "generate", "graph": GRAPH, "per_run": 8, "out": str(wanted)}
answers: dict[str, object] = {"wanted": operators_wanted.job(request)}
for name, fault in FAULTS.items():
    place = Path(OUT) / name
    place.mkdir()
    fake_tensorrt.FAULT.clear()
    fake_tensorrt.FAULT.update(fault)
    built = _engine_run.Built(fake_tensorrt.install("11.4.0"), fake_tensorrt.Driver())
    answers[name] = operators_engine.look(
        {
            "graph": GRAPH, "wanted": str(wanted), "scheme": "fp32", "per_run": 8, "out": str(place),
            "limits": {"own": 5e-6, "place": 2e-6, "answer": 1e-4, "stands_out": 5e-6},
        },
        built,
    )  # fmt: skip
    assert fake_tensorrt.MEMORY == {}, "memory of the GPU was not given back"
marks = fake_tensorrt.CALLS.count("mark_output")
(Path(OUT) / "answers.json").write_text(json.dumps({**answers, "marks": marks}))

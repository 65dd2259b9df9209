"""A worker on the stand-in for TensorRT; run by the onnx environment.

    python play_tensorrt.py REQUEST RESULT WORKERS JOB VERSION

JOB is a server's worker, or `build` with {"builds": [requests of tensorrt_build.py]}. The model's process runs
this file again, so that the stand-in is there too.
"""

import sys
from pathlib import Path
from typing import Any

WORKERS, JOB, VERSION = sys.argv[3:6]
sys.path += [WORKERS, str(Path(__file__).resolve().parents[1] / "workers")]
import _contract  # noqa: E402
import _serve_engine  # noqa: E402
import fake_tensorrt  # noqa: E402

fake_tensorrt.install(VERSION)
_serve_engine.Driver = fake_tensorrt.Driver  # type: ignore[assignment,misc]


def build(request: dict[str, Any]) -> dict[str, Any]:
    import tensorrt_build

    for one in request["builds"]:
        Path(one["out"]).mkdir(parents=True)
        tensorrt_build.job(one)
    return {}


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Runs inputs by the sizes of their tensors, and says which profile computed what."""
    import numpy

    session = _serve_engine.EngineSession(Path(request["model"]), "tensorrt")
    found: list[Any] = []
    for shape in request["shapes"]:
        fake_tensorrt.CALLS.clear()
        feed = {name: numpy.ones(shape, "int64") for name in session.inputs}
        try:
            (answer,) = session.run(session.outputs[:1], feed)
            rows: Any = len(answer)
        except _contract.Failure as failure:
            rows = [failure.reference, *failure.cause, *failure.hint]
        used = [call for call in fake_tensorrt.CALLS if call.startswith("profile") and "input_ids" in call]
        found.append({"rows": rows, "used": used})
    held = len(fake_tensorrt.MEMORY)
    session.close()
    return {"found": found, "held": held, "left": len(fake_tensorrt.MEMORY), "filled": [
        session.longer("input_ids", n) for n in (3, 20)
    ]}  # fmt: skip


if __name__ == "__main__":
    if JOB in ("build", "ask"):
        _contract.main({"build": build, "ask": ask}[JOB])
    module = __import__(JOB)
    _contract.main(module.job)

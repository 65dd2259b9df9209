"""Serve a graph of images over HTTP in the words of the Open Inference Protocol, as Triton does.

Request: `backend` (onnx, onnx_cuda, or for an engine tensorrt, tensorrt_rtx), `model` (folder with model.onnx
or model.engine, and mopt.json), `served_name`, `host`, `port`, `threads`, `max_batch_size`,
`batch_timeout_ms`, `spin`. POST /v2/models/NAME/infer takes {"inputs": [{"name", "shape", "datatype",
"data"}]}; requests whose images have one size are computed together. The port is answered after a first
answer came out.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import main
from _serve_lit import batching, new_server, serve


def job(request: dict[str, Any]) -> dict[str, Any]:
    return serve(request, create_server, ("onnx", "onnx_cuda", "tensorrt", "tensorrt_rtx"))


def create_server(request: dict[str, Any], failure: Path) -> Any:
    from _serve_tensors import Network, Tensors, describe

    folder, name = Path(request["model"]), request["served_name"]
    facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))
    sizes = failure.with_name("sizes.json")
    spec = Tensors(name, facts, sizes)
    network = Network(request, facts, failure, sizes, spec=spec, **batching(request))
    server = new_server(network, request, 1)
    platform = "onnxruntime_onnx" if request["backend"].startswith("onnx") else "tensorrt_plan"
    describe(server.app, name, facts, platform)
    return server


if __name__ == "__main__":
    main(job)

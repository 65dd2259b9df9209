"""Serve a graph of images over HTTP in the words of the Open Inference Protocol, as Triton does.

Request: `model` (folder with model.onnx and mopt.json), `served_name`, `host`, `port`, `threads`,
`max_batch_size`, `batch_timeout_ms`, `spin`. POST /v2/models/NAME/infer takes {"inputs": [{"name", "shape",
"datatype", "data"}]}; requests whose images have one size are computed together. The port is answered after a
first answer came out.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail, main, progress


def job(request: dict[str, Any]) -> dict[str, Any]:
    from _serve_http import bind
    from _serve_parent import end_with_parent

    end_with_parent()
    bind(request["host"], request["port"]).close()
    progress(f"loading {request['served_name']}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mopt-serve-") as folder:
        failure = Path(folder) / "failure.json"
        server = create_server(request, failure)
        try:
            server.run(
                host=request["host"],
                port=request["port"],
                num_api_servers=1,
                generate_client_file=False,
                log_level="warning",
                access_log=False,
                timeout_keep_alive=75,
            )
        except KeyboardInterrupt:
            pass
        except RuntimeError:
            if failure.is_file():
                said = json.loads(failure.read_text(encoding="utf-8"))
                fail(said["reference"], said["message"], said["cause"], said["hint"])
            raise
    return {"served_s": time.monotonic() - begun}


def create_server(request: dict[str, Any], failure: Path) -> Any:
    from _serve_embeddings import Server, WaitingLoop
    from _serve_http import Key, add_models_route, shape_errors
    from _serve_tensors import Network, Tensors, describe

    folder, name = Path(request["model"]), request["served_name"]
    facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))
    network = Network(
        request,
        facts,
        failure,
        max_batch_size=request.get("max_batch_size") or 1,
        batch_timeout=(request.get("batch_timeout_ms") or 0) / 1000,
        spec=Tensors(name, facts),
        loop=WaitingLoop(),
    )
    key = os.environ.get("MOPT_API_KEY")
    server = Server(
        network,
        accelerator="cpu",
        timeout=False,
        disable_openapi_url=True,
        middlewares=[(Key, {"key": key})] if key else [],
    )
    server.uvicorn_graceful_timeout = 2
    shape_errors(server.app)
    version = f"onnxruntime {importlib.metadata.version('onnxruntime')}"
    add_models_route(server.app, name, 1, version)
    describe(server.app, name, facts)
    return server


if __name__ == "__main__":
    main(job)

"""Serve an embedding model or a cross-encoder over HTTP, in OpenAI's words and /v1/rerank.

Request: `backend` (onnx or torch), `model` (folder), `served_name`, `host`, `port`, `threads`,
`max_model_len`, `max_batch_size` (texts that wait together), `max_batched_tokens` (of one batch, with
padding), `batch_timeout_ms`, `task` (rerank, else vectors), `dtype` (torch: fp32, bf16, fp16), `spin`
(whether idle threads of ONNX Runtime burn their core while they wait). Null means the backend's own choice.

The port is answered only after a first vector came out. The key comes from the variable MOPT_API_KEY, if
it is set. Ends with the process: SIGINT or SIGTERM.
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

PACKAGES = {"onnx": ("onnxruntime",), "torch": ("torch", "transformers")}


def job(request: dict[str, Any]) -> dict[str, Any]:
    from _serve_http import bind
    from _serve_parent import end_with_parent

    end_with_parent()
    if request["backend"] not in PACKAGES:
        fail("backend", f"there is no backend `{request['backend']}`", hint=[f"known: {', '.join(PACKAGES)}"])
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
        except RuntimeError as error:
            _explain(failure, error)
    return {"served_s": time.monotonic() - begun}


def create_server(request: dict[str, Any], failure: Path) -> Any:
    from _serve_embeddings import Embedder, Server, WaitingLoop
    from _serve_http import Key, add_models_route, shape_errors
    from _serve_vectors import longest

    folder = Path(request["model"])
    limit = longest(folder, request.get("max_model_len"))
    embedder = Embedder(
        request,
        max(limit, request.get("max_batched_tokens") or 0),
        failure,
        max_batch_size=request.get("max_batch_size") or 1,
        batch_timeout=(request.get("batch_timeout_ms") or 0) / 1000,
        spec=_spec(request, folder, limit),
        loop=WaitingLoop(),
    )
    key = os.environ.get("MOPT_API_KEY")
    server = Server(
        embedder,
        accelerator="cpu",
        timeout=False,
        disable_openapi_url=True,
        middlewares=[(Key, {"key": key})] if key else [],
    )
    server.uvicorn_graceful_timeout = 2
    shape_errors(server.app)
    packages = PACKAGES[request["backend"]]
    engine = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    add_models_route(server.app, request["served_name"], limit, engine)
    return server


def _spec(request: dict[str, Any], folder: Path, limit: int) -> Any:
    """What is asked and answered: vectors of texts, or scores of pairs where `task` is rerank."""
    from _serve_embeddings import EmbeddingsSpec
    from _serve_text import Texts

    given = (Texts(folder), request["served_name"], limit, _vocabulary(folder))
    if request.get("task") != "rerank":
        return EmbeddingsSpec(*given)
    from _serve_rerank import RerankSpec

    facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))
    return RerankSpec(*given, activation=facts.get("activation"))


def _vocabulary(folder: Path) -> int | None:
    config = folder / "config.json"
    return json.loads(config.read_text(encoding="utf-8")).get("vocab_size") if config.is_file() else None


def _explain(failure: Path, error: RuntimeError) -> None:
    if failure.is_file():
        said = json.loads(failure.read_text(encoding="utf-8"))
        fail(said["reference"], said["message"], said["cause"], said["hint"])
    raise error


if __name__ == "__main__":
    main(job)

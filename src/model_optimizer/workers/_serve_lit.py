"""What our servers on LitServe do alike: options, routes, their end, and why they did not start."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _contract import fail, progress

Create = Callable[[dict[str, Any], Path], Any]
"""A server for a request; the path is where the model's process leaves why it could not start."""


def serve(request: dict[str, Any], create: Create, backends: tuple[str, ...]) -> dict[str, Any]:
    """Until SIGINT or SIGTERM. The port is answered only after a first answer came out."""
    _require(request["backend"], backends)
    from _serve_http import bind, bind_without_delay
    from _serve_parent import end_with_parent

    end_with_parent()
    bind(request["host"], request["port"]).close()
    bind_without_delay()
    progress(f"loading {request['served_name']}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mopt-serve-") as folder:
        failure = Path(folder) / "failure.json"
        server = create(request, failure)
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


def batching(request: dict[str, Any]) -> dict[str, Any]:
    """How many wait for each other, and how long; in LitServe's words."""
    from _serve_embeddings import WaitingLoop

    return {
        "max_batch_size": request.get("max_batch_size") or 1,
        "batch_timeout": (request.get("batch_timeout_ms") or 0) / 1000,
        "loop": WaitingLoop(),
    }


def new_server(api: Any, request: dict[str, Any], longest: int) -> Any:
    """LitServe around one model, with the key, errors of one shape and the list of models."""
    from _serve_embeddings import Server
    from _serve_http import Key, add_models_route, shape_errors
    from _serve_session import version_of

    key = os.environ.get("MOPT_API_KEY")
    server = Server(
        api,
        accelerator="cpu",  # LitServe's word for a model's process that gets no GPU of LitServe's choice
        timeout=False,
        disable_openapi_url=True,
        middlewares=[(Key, {"key": key})] if key else [],
    )
    server.uvicorn_graceful_timeout = 2
    shape_errors(server.app)
    version = version_of(Path(request["model"]), request)
    add_models_route(server.app, request["served_name"], longest, version)
    return server


def _require(backend: str, backends: tuple[str, ...]) -> None:
    import importlib.util

    if backend not in backends:
        fail("backend", f"there is no backend `{backend}`", hint=[f"known: {', '.join(backends)}"])
    if importlib.util.find_spec("litserve") is None:
        fail(
            "package-missing",
            "this Python has no `litserve`, which our server stands on",
            hint=[f"{sys.executable} -m pip install 'litserve>=0.2.19,<0.3' 'transformers>=5.20,<6'"],
        )


def _explain(failure: Path, error: RuntimeError) -> None:
    if failure.is_file():
        said = json.loads(failure.read_text(encoding="utf-8"))
        fail(said["reference"], said["message"], said["cause"], said["hint"])
    raise error

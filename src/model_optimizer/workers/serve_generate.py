"""Serve a language model over HTTP in OpenAI's words.

Request: `backend` (onnx_genai or torch), `model` (folder), `served_name`, `host`, `port`, `threads`,
`max_model_len`, `max_batch_size` (sequences decoded at once), `max_batched_tokens` (of the prompts
that one step reads), `batch_timeout_ms`, `dtype` (torch: fp32, bf16, fp16), `spin` (whether idle
threads of ONNX Runtime burn their core while they wait). Null means the backend's own choice.

The port is taken before the model is loaded and answered only after a first token was decoded. The key
comes from the variable MOPT_API_KEY, if it is set. Ends with the process: SIGINT or SIGTERM.
"""

import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail, main, progress
from _serve_decode import Decoding, Limits


def job(request: dict[str, Any]) -> dict[str, Any]:
    import uvicorn
    from _serve_http import bind
    from _serve_parent import end_with_parent

    end_with_parent()
    taken = bind(request["host"], request["port"])
    folder = Path(request["model"])
    progress(f"loading {request['served_name']}")
    begun = time.monotonic()
    backend = load(request["backend"], folder, request)
    app = create_app(backend, folder, request)
    first_token(backend)
    progress(f"ready after {time.monotonic() - begun:.1f} s, {backend.version}")
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
    )
    with suppress(KeyboardInterrupt):  # uvicorn has closed what was open and passes the signal on
        uvicorn.Server(settings).run(sockets=[taken])
    return {"served_s": time.monotonic() - begun}


def load(name: str, folder: Path, request: dict[str, Any]) -> Any:
    threads, longest = request.get("threads"), request.get("max_model_len")
    if name == "onnx_genai":
        from _serve_genai import Genai

        return Genai(
            folder,
            threads=threads,
            spin=bool(request.get("spin")),
            max_model_len=longest,
            running=request.get("max_batch_size") or 1,
            prefill_tokens=request.get("max_batched_tokens"),
        )
    if name == "torch":
        from _serve_torch import Torch

        dtype = request.get("dtype") or "fp32"
        return Torch(folder, dtype=dtype, threads=threads, max_model_len=longest)
    return fail("backend", f"there is no backend `{name}`", hint=["known: onnx_genai, torch"])


def create_app(backend: Any, folder: Path, request: dict[str, Any]) -> Any:
    from _serve_completions import Service, add_routes
    from _serve_http import Key, add_models_route, shape_errors
    from _serve_text import Texts
    from fastapi import FastAPI

    limits = Limits(
        running=request.get("max_batch_size") or 1,
        prefill_tokens=request.get("max_batched_tokens") or backend.max_model_len,
        gather_s=(request.get("batch_timeout_ms") or 0) / 1000,
    )
    service = Service(Texts(folder), backend, limits, request["served_name"])

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        service.start()
        yield
        service.decoder.stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    shape_errors(app)
    add_models_route(app, service.name, backend.max_model_len, backend.version)
    add_routes(app, service)
    if key := os.environ.get("MOPT_API_KEY"):
        app.add_middleware(Key, key=key)
    return app


def first_token(backend: Any) -> None:
    """One real token, so that whoever is told `ready` gets an answer."""
    (step,) = backend.begin([Decoding(prompt=[0], max_tokens=1, ignore_eos=True)]).step()
    if step.finish == "error":
        fail("no-first-token", "the model is loaded but does not decode", [step.because or "no reason given"])


if __name__ == "__main__":
    main(job)

"""Serve an embedding model or a cross-encoder over HTTP, in OpenAI's words and /v1/rerank.

Request: `backend` (onnx, onnx_cuda, torch, or for an engine tensorrt, tensorrt_rtx), `model` (folder),
`served_name`, `host`, `port`, `threads`, `max_model_len`, `max_batch_size` (texts that wait together),
`max_batched_tokens` (of one batch, with padding), `batch_timeout_ms`, `task` (rerank, else vectors), `dtype`
(torch: fp32, bf16, fp16), `spin` (whether idle threads of ONNX Runtime burn their core while they wait). Null
means the backend's own choice.

The port is answered only after a first vector came out. The key comes from the variable MOPT_API_KEY, if
it is set. Ends with the process: SIGINT or SIGTERM.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import main
from _serve_lit import batching, new_server, serve


def job(request: dict[str, Any]) -> dict[str, Any]:
    return serve(request, create_server, ("onnx", "onnx_cuda", "torch", "tensorrt", "tensorrt_rtx"))


def create_server(request: dict[str, Any], failure: Path) -> Any:
    from _serve_embeddings import Embedder
    from _serve_vectors import longest

    folder = Path(request["model"])
    limit = longest(folder, request.get("max_model_len"))
    most_tokens = max(limit, request.get("max_batched_tokens") or 0)
    spec = _spec(request, folder, limit)
    embedder = Embedder(request, most_tokens, failure, spec=spec, **batching(request))
    return new_server(embedder, request, limit)


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


if __name__ == "__main__":
    main(job)

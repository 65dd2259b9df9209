"""`/v1/embeddings` on LitServe: its queues, its batches, its processes, and a spec of our own.

LitServe's own spec refuses a list of inputs as soon as requests are batched; here every input is a
request of its own, so that lists and strangers share batches. Its own loop asks the queue a thousand
times a second while nothing comes, each time through another process; here it waits for a first request
and then for others until the batch is full or `batch_timeout` has passed.
"""

import array
import asyncio
import base64
import json
import time
import traceback
import uuid
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Literal

import litserve
from _contract import Failure
from _serve_http import Refused, check_length, check_model, read
from _serve_session import open_session
from _serve_text import Texts
from _serve_vectors import Encoded, GraphVectors, TorchVectors, embed
from fastapi import Request
from fastapi.responses import JSONResponse
from litserve.loops.base import _SENTINEL_VALUE, _StopLoopError
from litserve.loops.simple_loops import BatchedLoop
from litserve.specs.base import LitSpec
from litserve.utils import LitAPIStatus, ResponseBufferItem, WorkerSetupStatus
from pydantic import BaseModel, ConfigDict

MOST_INPUTS = 2048
"""As OpenAI's endpoint."""


class EmbeddingAsked(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    input: str | list[int] | list[str] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    def inputs(self) -> list[str | list[int]]:
        given: list[Any] = [self.input] if isinstance(self.input, str) else list(self.input)
        if given and isinstance(given[0], int):
            given = [given]
        if not given or len(given) > MOST_INPUTS:
            raise Refused(400, f"1 to {MOST_INPUTS} inputs are wanted", code="inputs", param="input")
        return given


class EmbeddingsSpec(LitSpec):
    """Reads and writes OpenAI's words in the process that answers HTTP; token ids go to the model."""

    def __init__(self, texts: Texts, name: str, longest: int, vocabulary: int | None) -> None:
        super().__init__()
        self.api_path = "/v1/embeddings"
        self._texts: Texts | None = texts
        self._name = name
        self._longest = longest
        self._vocabulary = vocabulary

    def __getstate__(self) -> dict[str, Any]:
        """The process of the model needs no tokenizer."""
        return {**super().__getstate__(), "_texts": None}

    def pre_setup(self, lit_api: litserve.LitAPI) -> None:
        del lit_api
        self.add_endpoint(self.api_path, self.embeddings, ["POST"])

    def decode_request(self, request: Encoded, context_kwargs: Any = None) -> Encoded:
        return request

    def encode_response(self, output: bytes, context_kwargs: Any = None) -> bytes:
        return output

    async def embeddings(self, request: Request) -> JSONResponse:
        asked = await read(request, EmbeddingAsked)
        check_model(asked.model, self._name)
        encoded = [self._encode(one) for one in asked.inputs()]
        vectors = await asyncio.gather(*(self._vector(one) for one in encoded))
        if asked.dimensions not in (None, len(vectors[0]) // 4):
            raise Refused(
                400, "this model has one number of dimensions", code="unsupported", param="dimensions"
            )
        data = [
            {"object": "embedding", "index": i, "embedding": _written(vector, asked.encoding_format)}
            for i, vector in enumerate(vectors)
        ]
        tokens = sum(len(one.ids) for one in encoded)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": self._name, "usage": usage})

    def _encode(self, given: str | list[int]) -> Encoded:
        assert self._texts is not None
        if isinstance(given, str):
            encoded = Encoded(*self._texts.encode_typed(given))
        else:
            encoded = Encoded(given, [0] * len(given))
            if not all(0 <= token < (self._vocabulary or 2**31) for token in given):
                raise Refused(400, "a token id is not in the vocabulary", code="invalid_token", param="input")
        check_length(len(encoded.ids), 0, self._longest)
        return encoded

    async def _vector(self, encoded: Encoded) -> bytes:
        """Hand one text to the batches and wait for its vector, float32."""
        uid = uuid.uuid4()
        event = asyncio.Event()
        self.response_buffer[uid] = ResponseBufferItem(event=event)
        try:
            self.request_queue.put((self.response_queue_id, uid, time.monotonic(), encoded))
            await event.wait()
            vector, status = self.response_buffer[uid].response
        finally:
            self.response_buffer.pop(uid, None)
        if status == LitAPIStatus.ERROR:
            raise Refused(500, "the engine failed; the server's log says why", code="engine_failed")
        return vector


def _written(vector: bytes, encoding: str) -> str | list[float]:
    return base64.b64encode(vector).decode() if encoding == "base64" else array.array("f", vector).tolist()


class WaitingLoop(BatchedLoop):
    """LitServe's batched loop, asleep while there is nothing to do."""

    def get_batch_requests(
        self, lit_api: litserve.LitAPI, request_queue: Queue[Any], transport: Any
    ) -> tuple[list[Any], list[Any]]:
        del transport
        try:
            first = request_queue.get()
        except (KeyboardInterrupt, EOFError, OSError):
            raise _StopLoopError from None  # the server is going, and its queue with it
        batch = [self._checked(first)]
        until = time.monotonic() + lit_api.batch_timeout
        while len(batch) < lit_api.max_batch_size:
            left = until - time.monotonic()
            try:
                found = request_queue.get(timeout=left) if left > 0 else request_queue.get_nowait()
            except Empty:
                break
            batch.append(self._checked(found))
        return batch, []

    def _checked(self, found: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any]:
        if found == _SENTINEL_VALUE:
            raise _StopLoopError
        queue, uid, _since, encoded = found
        return queue, uid, encoded


class Embedder(litserve.LitAPI):
    """The model's process. Why it could not start is left in `failure` for the one that waits for it."""

    def __init__(self, request: dict[str, Any], batch_tokens: int, failure: Path, **options: Any) -> None:
        super().__init__(**options)
        self._request = request
        self._batch_tokens = batch_tokens
        self._failure = failure

    def setup(self, device: str) -> None:
        del device
        folder = Path(self._request["model"])
        try:
            self._model = load(folder, self._request)
            self.predict([Encoded([0], [0])])
        except Failure as error:
            leave(self._failure, error.reference, error.message, error.cause, error.hint)
            raise
        except Exception as error:
            traceback.print_exc()
            cause = [f"{type(error).__name__}: {error}"[:500]]
            leave(self._failure, "no-first-vector", "the model could not give a first vector", cause, ())
            raise

    def batch(self, inputs: list[Encoded]) -> list[Encoded]:
        return list(inputs)

    def predict(self, x: list[Encoded]) -> list[bytes]:
        found = embed(self._model, x, self._batch_tokens)
        return [vector.astype("<f4").tobytes() for vector in found]

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output


def load(folder: Path, request: dict[str, Any]) -> GraphVectors | TorchVectors:
    if request["backend"] == "torch":
        return TorchVectors(folder, dtype=request.get("dtype") or "fp32", threads=request.get("threads"))
    answer = "scores" if request.get("task") == "rerank" else "sentence_embedding"
    return GraphVectors(open_session(folder, request), answer)


def leave(path: Path, reference: str, message: str, cause: Any, hint: Any) -> None:
    body = {"reference": reference, "message": message, "cause": list(cause), "hint": list(hint)}
    path.write_text(json.dumps(body), encoding="utf-8")


class Server(litserve.LitServer):
    """Notices a model process that dies before it is ready, for which LitServe would wait forever."""

    def verify_worker_status(self) -> None:
        while not all(state == WorkerSetupStatus.READY for state in self.workers_setup_status.values()):
            if not all(worker.is_alive() for worker in self.inference_workers):
                raise RuntimeError("the process of the model ended before it was ready")
            time.sleep(0.05)

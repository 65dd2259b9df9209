"""Tensors over HTTP on LitServe: requests whose images have one size are computed together."""

import asyncio
import json
import math
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

import litserve
import numpy as np
from _contract import Failure
from _serve_embeddings import leave
from _serve_engine import EngineSession, ranges, takes
from _serve_http import Refused, read
from _serve_session import Session, open_session
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from litserve.specs.base import LitSpec
from litserve.utils import LitAPIStatus, ResponseBufferItem
from pydantic import BaseModel, ConfigDict

DATATYPES = {
    "tensor(float)": "FP32", "tensor(float16)": "FP16", "tensor(double)": "FP64", "tensor(bool)": "BOOL",
    "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32", "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16",
    "Float": "FP32", "Half": "FP16", "BFloat16": "FP32", "Bool": "BOOL",
    "Int8": "INT8", "UInt8": "UINT8", "Int32": "INT32", "Int64": "INT64",
}  # fmt: skip
"""The protocol's words for the types of ONNX Runtime and of TensorRT. JSON has no BF16: it is widened."""

NUMBERS = {
    "FP64": "float64", "FP32": "float32", "FP16": "float16", "BOOL": "bool",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16",
}  # fmt: skip
MOST_NUMBERS = 64 * 2**20


class Tensor(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class Asked(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str | None = None
    inputs: list[Tensor]


class Tensors(LitSpec):
    """Reads and writes the Open Inference Protocol in the process that answers HTTP."""

    def __init__(self, name: str, facts: dict[str, Any], sizes: Path) -> None:
        super().__init__()
        self.api_path = f"/v2/models/{name}/infer"
        self._name, self._facts, self._sizes = name, facts, sizes

    def pre_setup(self, lit_api: litserve.LitAPI) -> None:
        del lit_api
        self.add_endpoint(self.api_path, self.infer, ["POST"])

    def decode_request(self, request: Any, context_kwargs: Any = None) -> Any:
        return request

    def encode_response(self, output: Any, context_kwargs: Any = None) -> Any:
        return output

    async def infer(self, request: Request) -> JSONResponse:
        asked = await read(request, Asked)
        arrays = arrays_of(asked.inputs, self._facts)
        require_built_for(arrays, self._sizes)
        uid, event = uuid.uuid4(), asyncio.Event()
        self.response_buffer[uid] = ResponseBufferItem(event=event)
        try:
            self.request_queue.put((self.response_queue_id, uid, time.monotonic(), arrays))
            await event.wait()
            found, status = self.response_buffer[uid].response
        finally:
            self.response_buffer.pop(uid, None)
        if status == LitAPIStatus.ERROR:
            raise Refused(500, "the engine failed; the server's log says why", code="engine_failed")
        body = {"model_name": self._name, "model_version": "1", "outputs": written(found, self._facts)}
        return JSONResponse({**body, "id": asked.id} if asked.id else body)


class Network(litserve.LitAPI):
    """The model's process. Why it could not start is left in `failure` for the one that waits for it, the
    sizes that an engine was built for in `sizes`."""

    def __init__(
        self, request: dict[str, Any], facts: dict[str, Any], failure: Path, sizes: Path, **options: Any
    ) -> None:
        super().__init__(**options)
        self._request, self._facts, self._failure, self._sizes = request, facts, failure, sizes

    def setup(self, device: str) -> None:
        del device
        try:
            self._session = open_session(Path(self._request["model"]), self._request)
            if isinstance(self._session, EngineSession):  # which computed something already
                self._sizes.write_text(json.dumps(self._session.profiles), encoding="utf-8")
            else:
                self.predict([first_input(self._facts)])
        except Failure as error:
            leave(self._failure, error.reference, error.message, error.cause, error.hint)
            raise
        except Exception as error:
            traceback.print_exc()
            cause = [f"{type(error).__name__}: {error}"[:500]]
            leave(self._failure, "no-first-answer", "the model could not give a first answer", cause, ())
            raise

    def batch(self, inputs: list[Any]) -> list[Any]:
        return list(inputs)

    def predict(self, x: list[Any]) -> list[Any]:
        return compute(self._session, x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output


def describe(app: FastAPI, name: str, facts: dict[str, Any], platform: str) -> None:
    """What the network takes and gives, and that it is ready: it computed before the port was answered."""

    @app.get(f"/v2/models/{name}")
    async def metadata() -> JSONResponse:
        described = {
            key: [
                {
                    "name": v["name"],
                    "datatype": DATATYPES.get(v["type"], v["type"]),
                    "shape": shown(v["shape"]),
                }
                for v in facts[key]
            ]
            for key in ("inputs", "outputs")
        }
        return JSONResponse({"name": name, "versions": ["1"], "platform": platform, **described})

    @app.get(f"/v2/models/{name}/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"name": name, "ready": True})


def arrays_of(tensors: list[Any], facts: dict[str, Any]) -> dict[str, Any]:
    """What was sent as arrays, checked against what the graph takes."""
    given = {tensor.name: tensor for tensor in tensors}
    found: dict[str, Any] = {}
    for value in facts["inputs"]:
        tensor, kind = given.get(value["name"]), DATATYPES.get(value["type"])
        if kind is None:
            raise Refused(400, f"`{value['name']}` is {value['type']}, which is no number", code="datatype")
        if tensor is None:
            raise Refused(400, f"the input `{value['name']}` is missing", code="inputs", param="inputs")
        if tensor.datatype != kind:
            raise Refused(
                400, f"`{tensor.name}` is {kind}, not {tensor.datatype}", code="datatype", param="inputs"
            )
        wanted = value["shape"]
        fits = len(tensor.shape) == len(wanted) and all(
            n > 0 and (not isinstance(w, int) or w in (n, -1))
            for n, w in zip(tensor.shape, wanted, strict=False)
        )
        step = int(facts.get("size_step") or 1)
        if not fits or any(n % step for n in tensor.shape[2:]):
            shape = " x ".join(map(str, wanted))
            also = f", sides in steps of {step}" if step > 1 else ""
            raise Refused(400, f"`{tensor.name}` has the shape {shape}{also}", code="shape", param="inputs")
        count = math.prod(tensor.shape)
        if count > MOST_NUMBERS:
            raise Refused(
                413, f"an input has at most {MOST_NUMBERS} numbers", code="too_large", param="inputs"
            )
        try:
            array = np.asarray(tensor.data, dtype=NUMBERS[kind]).ravel()
        except (ValueError, TypeError, OverflowError):
            raise Refused(
                400, f"`{tensor.name}` holds what is no number of {kind}", code="data", param="inputs"
            ) from None
        if array.size != count:
            raise Refused(
                400, f"`{tensor.name}` has {array.size} numbers, its shape says {count}", code="data"
            )
        found[tensor.name] = array.reshape(tensor.shape)
    return found


def require_built_for(arrays: dict[str, Any], sizes: Path) -> None:
    """Refuse what no profile of an engine takes; where `sizes` is not there, any size is taken."""
    if not sizes.is_file():
        return
    profiles = json.loads(sizes.read_text(encoding="utf-8"))
    if not any(takes(profile, {name: array.shape for name, array in arrays.items()}) for profile in profiles):
        raise Refused(400, f"the engine takes {ranges(profiles)}", code="shape", param="inputs")


def written(found: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {v["name"]: DATATYPES.get(v["type"], "FP32") for v in facts["outputs"]}
    return [
        {"name": n, "shape": list(a.shape), "datatype": kinds[n], "data": a.ravel().tolist()}
        for n, a in found.items()
    ]


def compute(session: Session, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests of one size together, each answer back in its place."""
    names = session.outputs
    groups: dict[Any, list[int]] = {}
    for place, arrays in enumerate(requests):
        groups.setdefault(tuple(a.shape[1:] for a in arrays.values()), []).append(place)
    found: list[Any] = [None] * len(requests)
    for places in groups.values():
        fed = {name: np.concatenate([requests[p][name] for p in places]) for name in requests[places[0]]}
        outputs = session.run(names, fed)
        begin = 0
        for place in places:
            end = begin + len(next(iter(requests[place].values())))
            found[place] = {name: array[begin:end] for name, array in zip(names, outputs, strict=True)}
            begin = end
    return found


def first_input(facts: dict[str, Any]) -> dict[str, Any]:
    step = int(facts.get("size_step") or 1)
    sizes = {"batch": 1, "height": 2 * step, "width": 2 * step}
    return {
        v["name"]: np.zeros(
            [d if isinstance(d, int) else sizes.get(d, 1) for d in v["shape"]], dtype="float32"
        )
        for v in facts["inputs"]
    }


def shown(shape: list[Any]) -> list[int]:
    return [d if isinstance(d, int) else -1 for d in shape]

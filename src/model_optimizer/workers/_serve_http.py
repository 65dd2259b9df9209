"""What both servers answer alike: errors in OpenAI's shape, the key, the list of models, large bodies."""

import hmac
import socket
import time
from typing import Any, TypeVar

from _contract import fail
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException as StarletteError
from starlette.types import ASGIApp, Receive, Scope, Send

LARGEST_BODY = 32 * 2**20
KINDS = {401: "authentication_error", 404: "not_found_error", 500: "server_error", 503: "server_error"}

M = TypeVar("M", bound=BaseModel)


class Refused(Exception):
    """A request that gets no answer: HTTP status, a sentence for a person, a word for a program."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = KINDS.get(self.status, "invalid_request_error")
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code or self.status,
            }
        }


def shape_errors(app: FastAPI) -> None:
    """Whatever goes wrong has a body of one shape."""

    async def refused(_request: Request, error: Exception) -> JSONResponse:
        known = error if isinstance(error, Refused) else Refused(500, "the server failed; its log says why")
        return JSONResponse(known.body(), known.status)

    async def http(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteError)
        return JSONResponse(Refused(error.status_code, str(error.detail)).body(), error.status_code)

    async def invalid(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        found = refused_by(error.errors())
        return JSONResponse(found.body(), found.status)

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(StarletteError, http)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, refused)


def refused_by(errors: Any) -> Refused:
    """The first complaint of pydantic in one sentence."""
    first = errors[0]
    # What follows the name of a field are the kinds that a union tried.
    place = next((str(part) for part in first["loc"] if part != "body"), "")
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    return Refused(400, message, code="invalid_request", param=place or None)


async def read(request: Request, kind: type[M]) -> M:
    """The body of a request as one of our models. Refused when it is too large or not one."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise Refused(413, f"a request has at most {LARGEST_BODY} bytes", code="body_too_large")
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        raise refused_by(error.errors()) from None


def check_model(asked: str | None, served: str) -> None:
    if asked is not None and asked != served:
        raise Refused(
            404,
            f"there is no model `{asked}` here, this is `{served}`",
            code="model_not_found",
            param="model",
        )


def check_length(tokens: int, answer: int, longest: int) -> None:
    if tokens == 0:
        raise Refused(400, "the prompt has no tokens", code="empty_prompt", param="prompt")
    if tokens + answer > longest:
        parts = f" ({tokens} in the prompt, {answer} for the answer)" if answer else ""
        raise Refused(
            400,
            f"this model's maximum context length is {longest} tokens, {tokens + answer} were asked{parts}",
            code="context_length_exceeded",
            param="prompt",
        )


def add_models_route(app: FastAPI, name: str, longest: int, engine: str) -> None:
    created = int(time.time())

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "model-optimizer",
            "max_model_len": longest,
            "engine": engine,
        }
        return {"object": "list", "data": [card]}


class Key:
    """Asks for `Authorization: Bearer KEY` below /v1/, in constant time. Health stays open, as in vLLM."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._wanted = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                refused = Refused(401, "the API key is missing or wrong", code="invalid_api_key")
                await JSONResponse(refused.body(), 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def without_delay(taken: socket.socket) -> socket.socket:
    """Connections of this socket send at once.

    uvicorn writes head and body of an answer apart. Without uvloop, asyncio leaves a socket that it did not
    make as it is, and the body would wait some 40 ms for the head to be acknowledged.
    """
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return taken


def bind_without_delay() -> None:
    """The same for the socket that LitServe lets uvicorn make."""
    import uvicorn

    made = uvicorn.Config.bind_socket
    uvicorn.Config.bind_socket = lambda config: without_delay(made(config))


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the port, so that one in use is known before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    without_delay(taken)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        fail(
            "port-in-use",
            f"port {port} of {host} cannot be used",
            [error.strerror or str(error)],
            ["name another one with --port"],
        )
    return taken

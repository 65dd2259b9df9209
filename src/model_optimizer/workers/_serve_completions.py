"""`/v1/completions` and `/v1/chat/completions`, whole or as a stream, for one loaded language model.

Why these routes do not go through LitServe 0.2.19, which serves embeddings here: each of its streamed
tokens crosses three processes through a manager's queue, which took 0.2 to 0.4 ms a token on two cores
(a step of a small model takes 1 to 3 ms); its faster transport is PUB/SUB and drops what a slow reader
has not taken; and nothing tells its inference process that a client went away. So FastAPI and uvicorn,
which LitServe itself is made of, answer here in the process that decodes.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, NamedTuple

from _serve_decode import Decoder, Decoding, Limits, Step
from _serve_http import Refused, check_length, check_model, read
from _serve_text import NoTemplate, Pieces, Texts
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

MOST_AT_ONCE = 4096
DEFAULT_ANSWER = 16
"""OpenAI's default for completions; a chat answer may fill the context."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "min_tokens": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
}
"""Options that change an answer and are not offered: only values that ask for nothing are let pass."""


class StreamOptions(BaseModel):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Asked(BaseModel):
    """What both routes read. Fields that nobody knows are left alone, as other servers do."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    temperature: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    seed: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    return_token_ids: bool | None = None

    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def refuse_what_is_not_offered(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if value is not None and name in NEUTRAL and value not in NEUTRAL[name]:
                raise Refused(400, f"`{name}` is not offered by this server", code="unsupported", param=name)

    def decoding(self, prompt: list[int], answer: int) -> Decoding:
        return Decoding(
            prompt=prompt,
            max_tokens=answer,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature or 0.0,
            top_p=self.top_p or 1.0,
            seed=self.seed,
        )


class CompletionAsked(Asked):
    prompt: str | list[int] | list[str] | list[list[int]]

    def prompts(self, texts: Texts) -> list[list[int]]:
        given: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if given and isinstance(given[0], int):
            given = [given]
        if not given:
            raise Refused(400, "there is no prompt", code="empty_prompt", param="prompt")
        return [texts.encode(one) if isinstance(one, str) else one for one in given]


class Message(BaseModel):
    """`content` may come in parts; only text parts are read."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def plain(self) -> dict[str, Any]:
        content = self.content
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                raise Refused(
                    400, "only parts of type `text` can be read", code="unsupported", param="messages"
                )
            content = "\n".join(str(part.get("text", "")) for part in content)
        return {"role": self.role, "content": content or ""}


class ChatAsked(Asked):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None

    def prompt(self, texts: Texts) -> list[int]:
        try:
            return texts.encode_chat([message.plain() for message in self.messages])
        except NoTemplate:
            raise Refused(
                400, "this model has no chat template; use /v1/completions", code="no_chat_template"
            ) from None
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - a template may raise anything, also to refuse a role
            raise Refused(
                400, f"the chat template refuses this: {error}", code="chat_template", param="messages"
            ) from None


class Piece(NamedTuple):
    """One step of the answer to prompt number `answer`, as a client sees it."""

    answer: int
    text: str
    token: int | None
    finish: str | None


class Service:
    """A decoder between event-loop clients: steps come from its thread, pieces go to who asked."""

    def __init__(self, texts: Texts, backend: Any, limits: Limits, name: str) -> None:
        self.texts = texts
        self.name = name
        self.backend = backend
        self.decoder = Decoder(backend, limits, self._from_thread)
        self.tokens = 0
        self._queues: dict[Decoding, asyncio.Queue[Step]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.decoder.start()

    def check(self, prompts: Sequence[list[int]], answer: int) -> None:
        if len(self._queues) + len(prompts) > MOST_AT_ONCE:
            raise Refused(503, "too many requests wait already", code="overloaded")
        for prompt in prompts:
            check_length(len(prompt), answer, self.backend.max_model_len)
            if not all(0 <= token < self.backend.vocabulary for token in prompt):
                raise Refused(
                    400, "a token id is not in the vocabulary", code="invalid_token", param="prompt"
                )

    async def run(self, decodings: list[Decoding], stop: Sequence[str]) -> AsyncIterator[Piece]:
        """The pieces of all answers, in the order in which they come. Leaving early cancels the rest."""
        queue: asyncio.Queue[Step] = asyncio.Queue()
        going = {d: (i, self.texts.pieces(stop)) for i, d in enumerate(decodings)}
        self._queues |= dict.fromkeys(decodings, queue)
        try:
            self.decoder.submit(decodings)
            while going:
                step = await queue.get()
                if step.decoding not in going:
                    continue
                index, pieces = going[step.decoding]
                piece = _piece(index, pieces, step)
                if piece.finish:
                    del going[step.decoding]
                    step.decoding.cancelled = True
                yield piece
        finally:
            self.decoder.cancel(list(going))
            for decoding in decodings:
                del self._queues[decoding]

    def _from_thread(self, steps: list[Step]) -> None:
        assert self._loop is not None
        self.tokens += sum(step.token is not None for step in steps)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hand_out, steps)

    def _hand_out(self, steps: list[Step]) -> None:
        for step in steps:
            queue = self._queues.get(step.decoding)
            if queue is not None:
                queue.put_nowait(step)


def _piece(index: int, pieces: Pieces, step: Step) -> Piece:
    if step.finish == "error":
        raise Refused(500, f"the engine failed: {step.because}", code="engine_failed")
    # An end-of-sequence token has no text, whatever the tokenizer would make of it.
    text = pieces.add(step.token) if step.token is not None and step.finish != "stop" else ""
    finish = "stop" if pieces.stopped else step.finish
    if finish and not pieces.stopped:
        text += pieces.end()
    return Piece(index, text, step.token, finish)


class _Answer:
    """Writes one request's answer in the words of its route."""

    def __init__(self, service: Service, asked: Asked, decodings: list[Decoding], *, chat: bool) -> None:
        self._service = service
        self._asked = asked
        self._decodings = decodings
        self._chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._object = f"{kind}.chunk" if chat and asked.stream else kind
        self._frame: dict[str, Any] = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": self._object,
            "created": int(time.time()),
            "model": service.name,
        }
        self._tokens = 0

    async def whole(self) -> dict[str, Any]:
        count = len(self._decodings)
        texts, ids = [""] * count, [list[int]() for _ in range(count)]
        ends: list[str | None] = [None] * count
        async for piece in self._pieces():
            texts[piece.answer] += piece.text
            if piece.token is not None:
                ids[piece.answer].append(piece.token)
            ends[piece.answer] = piece.finish
        choices = [self._choice(i, texts[i], ends[i], ids[i], first=True) for i in range(count)]
        return {**self._frame, "choices": choices, "usage": self._usage()}

    async def stream(self) -> AsyncIterator[str]:
        options = self._asked.stream_options or StreamOptions()
        begun: set[int] = set()
        try:
            async for piece in self._pieces():
                first = piece.answer not in begun
                begun.add(piece.answer)
                ids = [] if piece.token is None else [piece.token]
                choice = self._choice(piece.answer, piece.text, piece.finish, ids, first=first)
                chunk = {**self._frame, "choices": [choice]}
                if options.continuous_usage_stats:
                    chunk["usage"] = self._usage()
                elif options.include_usage:
                    chunk["usage"] = None
                yield _event(chunk)
        except Refused as error:
            # The status line is gone already; the error takes the place of the next chunk.
            yield _event(error.body())
        else:
            if options.include_usage:
                yield _event({**self._frame, "choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    async def _pieces(self) -> AsyncIterator[Piece]:
        pieces = self._service.run(self._decodings, self._asked.stops())
        try:
            async for piece in pieces:
                self._tokens += 1
                yield piece
        finally:
            await pieces.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    def _choice(
        self, index: int, text: str, finish: str | None, ids: list[int], *, first: bool
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": finish}
        if self._asked.return_token_ids:
            choice["token_ids"] = ids
            if first:
                choice["prompt_token_ids"] = self._decodings[index].prompt
        if not self._chat:
            return {**choice, "text": text}
        if not self._asked.stream:
            return {**choice, "message": {"role": "assistant", "content": text}}
        role = {"role": "assistant"} if first else {}
        return {**choice, "delta": {**role, "content": text}}

    def _usage(self) -> dict[str, int]:
        prompt = sum(len(d.prompt) for d in self._decodings)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._tokens,
            "total_tokens": prompt + self._tokens,
        }


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


def add_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if service.decoder.alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        values = {
            "mopt_requests_running": ("gauge", service.decoder.running),
            "mopt_requests_waiting": ("gauge", service.decoder.waiting),
            "mopt_generated_tokens_total": ("counter", service.tokens),
        }
        lines = [f"# TYPE {name} {kind}\n{name} {value}\n" for name, (kind, value) in values.items()]
        return Response("".join(lines), media_type="text/plain; version=0.0.4")

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        asked = await read(request, CompletionAsked)
        check_model(asked.model, service.name)
        asked.refuse_what_is_not_offered()
        prompts = asked.prompts(service.texts)
        return await _answer(request, service, asked, prompts, asked.max_tokens or DEFAULT_ANSWER, chat=False)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        asked = await read(request, ChatAsked)
        check_model(asked.model, service.name)
        asked.refuse_what_is_not_offered()
        prompt = asked.prompt(service.texts)
        room = max(1, service.backend.max_model_len - len(prompt))
        answer = asked.max_completion_tokens or asked.max_tokens or room
        return await _answer(request, service, asked, [prompt], answer, chat=True)


async def _answer(
    request: Request, service: Service, asked: Asked, prompts: list[list[int]], answer: int, *, chat: bool
) -> Response:
    service.check(prompts, answer)
    writer = _Answer(service, asked, [asked.decoding(prompt, answer) for prompt in prompts], chat=chat)
    if asked.stream:
        return StreamingResponse(writer.stream(), media_type="text/event-stream")
    whole = asyncio.ensure_future(writer.whole())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({whole, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not whole.done():
            return Response(status_code=499)  # nobody reads it; the answer is cancelled below
        return JSONResponse(whole.result())
    finally:
        for task in (whole, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

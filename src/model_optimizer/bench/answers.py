"""What an answer says: from the recorded bytes of an exchange to its outcome. Pure functions."""

import re

import msgspec
from msgspec import UNSET, UnsetType

from .exchange import Exchange, Kind, Outcome
from .sse import events
from .target import GENERATES, Api
from .wire import Answer, WireError, read_answer

_DETAIL = 200
_TAG = re.compile(r"<[^>]{0,200}>")


def _said(value: msgspec.Raw) -> bool:
    """Whether a member is there and holds something."""
    return bytes(value) not in (b"", b"null", b'""', b"[]")


class _Message(msgspec.Struct, gc=False):
    """The part of a choice that carries content: a delta of a stream, or a whole message."""

    content: msgspec.Raw | UnsetType = UNSET
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None

    @property
    def has_content(self) -> bool:
        if self.content is not UNSET and _said(self.content):
            return True
        return bool(self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _Message | None = None
    message: _Message | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None

    @property
    def has_content(self) -> bool:
        if self.text or self.token_ids:
            return True
        part = self.delta or self.message
        return part is not None and part.has_content


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Vector(msgspec.Struct, gc=False):
    embedding: msgspec.Raw | UnsetType = UNSET
    score: float | None = None


class _Rank(msgspec.Struct, gc=False):
    relevance_score: float | None = None


class _Document(msgspec.Struct, gc=False):
    """Whatever an OpenAI-like server answers; members that are not there stay None."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    data: list[_Vector] | None = None
    results: list[_Rank] | None = None
    outputs: list[msgspec.Raw] | None = None
    error: msgspec.Raw | UnsetType = UNSET


class _Stream(msgspec.Struct, gc=False):
    """What the events of one stream add up to."""

    token_ns: list[int] = []
    event_ns: list[int] = []
    event_tokens: list[int] | None = None
    usage: _Usage | None = None
    ended: bool = False


class _Wrong(Exception):
    """The answer is not what was asked for: the kind of failure, and why."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind: Kind = kind


_DECODER = msgspec.json.Decoder(_Document)


def read(exchange: Exchange, api: Api, *, secret: str | None = None) -> Outcome:
    """Judge a finished exchange. `secret` is taken out of whatever the server says."""
    try:
        if exchange.error is not None:
            raise _Wrong(exchange.error, exchange.detail or "")
        return _good(exchange, read_answer(exchange.pieces, exchange.times_ns), api)
    except WireError as error:
        return _bad(exchange, "wrong_content", str(error), secret)
    except _Wrong as wrong:
        return _bad(exchange, wrong.kind, str(wrong), secret)


def _good(exchange: Exchange, answer: Answer, api: Api) -> Outcome:
    _check_status(answer)
    packed = answer.head.headers.get("content-encoding", "").strip().lower()
    if packed not in ("", "identity"):
        raise _Wrong("wrong_content", f"the answer is compressed ({packed[:20]}), which was not asked for")
    kind = answer.head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream" and api in GENERATES:
        return _from_stream(exchange, _read_stream(answer))
    if not answer.complete:
        raise _Wrong("truncated_stream", "the connection ended before the answer did")
    if kind == "text/html":
        raise _Wrong("wrong_content", f"HTML instead of JSON: {_plain(answer.body)}")
    document = _decode(answer.body)
    _check_document(document, api)
    prompt, output, invalid = _counts(document.usage, content=bool(document.choices))
    return _outcome(exchange, prompt, None if api not in GENERATES else output, invalid)


def _check_status(answer: Answer) -> None:
    status = answer.head.status
    if 200 <= status < 300:
        return
    kind: Kind = "wrong_content"
    if 400 <= status < 600:
        kind = "http_4xx" if status < 500 else "http_5xx"
    where = answer.head.headers.get("location")
    detail = f"to {where}" if where else _plain(answer.body)
    raise _Wrong(kind, f"HTTP {status} {answer.head.reason}".strip() + (f": {detail}" if detail else ""))


def _read_stream(answer: Answer) -> _Stream:
    found = _Stream(token_ns=[], event_ns=[])
    read = events(answer.body)
    times = answer.arrivals_ns([end for _, end in read])
    counts: list[int] = []
    before = after = None
    for (data, end), now in zip(read, times, strict=True):
        if before is not None and after is not None and data.startswith(before) and data.endswith(after):
            text = data[len(before) : -len(after)]
            if text and b'"' not in text and b"\\" not in text and len(data) > len(before) + len(after):
                found.event_ns.append(now)
                found.token_ns.append(now)
                counts.append(0)
                continue
        if data == b"[DONE]":
            found.ended = True
            continue
        document = _decode(data, truncated=not answer.complete and end >= len(answer.body))
        if document.error is not UNSET and _said(document.error):
            raise _Wrong("wrong_content", f"an error within the stream: {_plain(bytes(document.error))}")
        if document.usage is not None:
            found.usage = document.usage
        if not document.choices:
            continue
        found.event_ns.append(now)
        content, tokens = False, 0
        for choice in document.choices:
            found.ended = found.ended or choice.finish_reason is not None
            tokens += len(choice.token_ids) if choice.token_ids else 0
            content = content or choice.has_content
        if content:
            found.token_ns.append(now)
            counts.append(tokens)
        before, after = _around(data, document)
    if not answer.complete or not found.ended:
        raise _Wrong("truncated_stream", "the stream ended before it said that it was done")
    if counts and all(counts):
        found.event_tokens = counts
    return found


def _around(data: bytes, document: _Document) -> tuple[bytes | None, bytes | None]:
    """What stands before and after the text of an event that holds one text and nothing that counts.

    The next event that begins and ends with the same bytes, and has neither a quotation mark nor an escape
    between, means the same but for its text: JSON leaves no other reading. So it need not be decoded.
    """
    choices = document.choices or ()
    if len(choices) != 1 or document.usage is not None:
        return None, None
    (choice,) = choices
    if choice.token_ids is not None or choice.finish_reason is not None or choice.message is not None:
        return None, None
    text = choice.text
    if choice.delta is not None:
        part = choice.delta
        if text or part.reasoning or part.reasoning_content or part.tool_calls or part.content is UNSET:
            return None, None
        said = bytes(part.content)
    else:
        said = msgspec.json.encode(text)
    if len(said) < 3 or not said.startswith(b'"') or data.count(said) != 1 or b"\\" in said:
        return None, None
    begin = data.index(said) + 1
    return data[:begin], data[begin + len(said) - 2 :]


def _from_stream(exchange: Exchange, found: _Stream) -> Outcome:
    prompt, output, invalid = _counts(found.usage, content=bool(found.token_ns))
    if not found.event_ns or (not found.token_ns and not output):
        raise _Wrong("wrong_content", "the stream held no token")
    return _outcome(exchange, prompt, output, invalid, found)


def _outcome(
    exchange: Exchange, prompt: int | None, output: int | None, invalid: bool, found: _Stream | None = None
) -> Outcome:
    return Outcome(
        index=exchange.index,
        measured=exchange.measured,
        scheduled_ns=exchange.scheduled_ns,
        sent_ns=exchange.sent_ns,
        finished_ns=exchange.finished_ns or exchange.times_ns[-1],
        token_ns=tuple(found.token_ns) if found else (),
        event_ns=tuple(found.event_ns) if found else (),
        event_tokens=tuple(found.event_tokens) if found and found.event_tokens else None,
        prompt_tokens=prompt,
        output_tokens=output,
        usage_invalid=invalid,
        streamed=found is not None,
        wanted_prompt_tokens=exchange.prepared.prompt_tokens,
        wanted_output_tokens=exchange.prepared.output_tokens,
        label=exchange.prepared.label,
    )


def _bad(exchange: Exchange, kind: Kind, detail: str, secret: str | None) -> Outcome:
    if secret:
        detail = detail.replace(secret, "***")
    return Outcome(
        index=exchange.index,
        measured=exchange.measured,
        scheduled_ns=exchange.scheduled_ns,
        sent_ns=exchange.sent_ns,
        finished_ns=exchange.finished_ns or exchange.scheduled_ns,
        error=kind,
        detail=detail[:_DETAIL],
        wanted_prompt_tokens=exchange.prepared.prompt_tokens,
        wanted_output_tokens=exchange.prepared.output_tokens,
        label=exchange.prepared.label,
    )


def _decode(data: bytes, *, truncated: bool = False) -> _Document:
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if truncated:
            raise _Wrong("truncated_stream", "the stream ended within an event") from None
        raise _Wrong("wrong_content", f"{error}: {_plain(data)}") from None


def _check_document(document: _Document, api: Api) -> None:
    """One choice, vector or score at least, as the interface promises."""
    if document.error is not UNSET and _said(document.error):
        raise _Wrong("wrong_content", f"an error with status 200: {_plain(bytes(document.error))}")
    match api:
        case "completions" | "chat":
            tokens = document.usage.completion_tokens if document.usage else None
            good = bool(document.choices) and (
                any(c.has_content for c in document.choices or ()) or bool(tokens)
            )
        case "embeddings":
            vectors = document.data or ()
            good = bool(vectors) and all(v.embedding is not UNSET and _said(v.embedding) for v in vectors)
        case "rerank":
            results = document.results or ()
            good = bool(results) and all(r.relevance_score is not None for r in results)
        case "infer":
            good = bool(document.outputs)
        case "score":
            good = bool(document.data) and all(v.score is not None for v in document.data or ())
    if not good:
        raise _Wrong("wrong_content", f"the answer holds nothing that /{api} promises")


def _counts(usage: _Usage | None, *, content: bool) -> tuple[int | None, int | None, bool]:
    """Prompt and output tokens, and whether the server reported nonsense (then neither is believed): a
    number below zero, or no output where there was `content`."""
    if usage is None:
        return None, None, False
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    if any(count is not None and count < 0 for count in (prompt, output)) or (content and output == 0):
        return None, None, True
    return prompt or usage.total_tokens or None, output, False


def _plain(data: bytes) -> str:
    """What a server says, as one short line of text."""
    text = data[:2000].decode("utf-8", errors="replace")
    return " ".join(_TAG.sub(" ", text).split())[:_DETAIL]


class _Said(msgspec.Struct, gc=False):
    content: str | None = None


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _Said | None = None
    message: _Said | None = None


class _Parts(msgspec.Struct, gc=False):
    choices: list[_Part] = []


def text_of(exchange: Exchange) -> str | None:
    """What the server said, for the next turn of a session; None when the exchange went wrong."""
    if exchange.error is not None or exchange.status != 200:
        return None
    try:
        answer = read_answer(exchange.pieces, exchange.times_ns)
        streamed = answer.head.headers.get("content-type", "").startswith("text/event-stream")
        bodies = [data for data, _ in events(answer.body)] if streamed else [answer.body]
        found = [msgspec.json.decode(data, type=_Parts) for data in bodies if data != b"[DONE]"]
    except (WireError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    words: list[str] = []
    for part in (choice for document in found for choice in document.choices[:1]):
        said = part.delta or part.message
        words.append(part.text or (said.content if said else None) or "")
    return "".join(words)

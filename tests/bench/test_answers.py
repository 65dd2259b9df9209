"""What an answer says, and which kind of failure a bad one is."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench.answers import read
from model_optimizer.bench.exchange import Exchange, Outcome
from model_optimizer.bench.request import Prepared
from model_optimizer.bench.target import Api

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def exchange(pieces: list[bytes], *, whole: bool = True) -> Exchange:
    """Each piece arrived 10 ms after the one before; sent at 1 ms."""
    made = Exchange(Prepared(data=b""), index=0, measured=True, scheduled_ns=0)
    made.sent_ns = 1_000_000
    made.pieces = pieces
    made.times_ns = [10_000_000 * (i + 1) for i in range(len(pieces))]
    if whole:
        made.finished_ns = made.times_ns[-1] if pieces else 0
    return made


def plain(
    body: object, *, status: str = "200 OK", kind: str = "application/json", api: Api = "completions"
) -> Outcome:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
    return read(exchange([head + raw]), api)


def stream(
    lines: list[str], *, done: bool = True, end: bytes = b"0\r\n\r\n", api: Api = "completions"
) -> Outcome:
    """One chunk and one piece for each event."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    events = [f"data: {line}\n\n".encode() for line in [*lines, *(["[DONE]"] if done else [])]]
    return read(exchange([head, *(b"%x\r\n%b\r\n" % (len(e), e) for e in events), end]), api)


def text(content: str, **more: object) -> str:
    return json.dumps({"choices": [{"text": content, **more}]})


def delta(**content: object) -> str:
    return json.dumps({"choices": [{"delta": content}]})


def test_a_stream_of_completions() -> None:
    found = stream(
        [text("a"), text("b"), text("", finish_reason="stop"), json.dumps({"choices": [], "usage": USAGE})]
    )
    assert found.error is None
    assert [t // 1_000_000 for t in found.token_ns] == [20, 30]
    assert [t // 1_000_000 for t in found.event_ns] == [20, 30, 40]
    assert (found.prompt_tokens, found.output_tokens, found.streamed) == (7, 3, True)
    assert found.last_ns == 30_000_000


def test_a_role_is_no_content_but_reasoning_and_tool_calls_are() -> None:
    events = [delta(role="assistant", content=""), delta(reasoning_content="hm"), delta(content="a")]
    events += [delta(tool_calls=[{"index": 0}]), delta(content=None), text("", finish_reason="stop")]
    found = stream(events, api="chat")
    assert len(found.token_ns) == 3
    assert len(found.event_ns) == 6
    assert found.tokens == 3  # no usage: events with content are counted


def test_token_ids_in_events_are_counted() -> None:
    found = stream([text("ab", token_ids=[5, 6]), text("", token_ids=[7], finish_reason="length")])
    assert (found.event_tokens, found.tokens) == ((2, 1), 3)


def test_tokens_without_any_text_are_taken_from_usage() -> None:
    found = stream([text(""), text(""), json.dumps({"choices": [], "usage": USAGE})], done=True)
    assert (found.error, found.token_ns, found.tokens) == (None, (), 3)


@pytest.mark.parametrize(
    ("found", "kind", "says"),
    [
        (lambda: stream([text("a")], done=False), "truncated_stream", "ended before it said"),
        (lambda: stream([text("a")], end=b""), "truncated_stream", "ended before it said"),
        (lambda: stream([text("a"), '{"choi'], done=False, end=b""), "truncated_stream", "within an event"),
        (lambda: stream(["{not json"]), "wrong_content", "malformed"),
        (lambda: stream(['{"error": {"message": "out of memory"}}']), "wrong_content", "out of memory"),
        (lambda: stream([], done=False), "truncated_stream", "ended before"),
        (lambda: stream([]), "wrong_content", "no token"),
        (lambda: stream([text("", finish_reason="stop")]), "wrong_content", "no token"),
        (lambda: plain("<html><h1>It works!</h1></html>", kind="text/html"), "wrong_content", "It works!"),
        (
            lambda: plain("{}", kind="application/json\r\nContent-Encoding: gzip"),
            "wrong_content",
            "compressed (gzip)",
        ),
        (lambda: plain("plainly not JSON", kind="text/plain"), "wrong_content", "plainly not JSON"),
        (lambda: plain({"choices": []}), "wrong_content", "nothing that /completions promises"),
        (lambda: plain({"error": {"message": "no"}}), "wrong_content", "an error with status 200"),
        (lambda: plain({"detail": "no such"}, status="404 Not Found"), "http_4xx", "HTTP 404 Not Found: {"),
        (lambda: plain("Bad gateway", status="502 Bad"), "http_5xx", "HTTP 502 Bad: Bad gateway"),
        (lambda: plain("", status="307 Elsewhere"), "wrong_content", "HTTP 307 Elsewhere"),
        (lambda: plain({"data": []}, api="embeddings"), "wrong_content", "promises"),
        (lambda: plain({"data": [{"embedding": []}]}, api="embeddings"), "wrong_content", "promises"),
        (lambda: plain({"data": [{"embedding": None}]}, api="embeddings"), "wrong_content", "promises"),
        (lambda: plain({"results": [{"index": 0}]}, api="rerank"), "wrong_content", "promises"),
        (lambda: plain({"data": [{"index": 0}]}, api="score"), "wrong_content", "promises"),
        (lambda: plain({"outputs": []}, api="infer"), "wrong_content", "promises"),
        (lambda: read(exchange([b"HTTP/1.1 2"]), "chat"), "wrong_content", "within the header"),
    ],
)
def test_kinds_of_failure(found, kind: str, says: str) -> None:
    outcome = found()
    assert (outcome.error, says in outcome.detail) == (kind, True), outcome.detail


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("completions", {"choices": [{"text": "a"}], "usage": USAGE, "error": None}),
        ("chat", {"choices": [{"message": {"content": "a"}}], "usage": USAGE}),
        ("embeddings", {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}}),
        ("embeddings", {"data": [{"embedding": "AAAA"}], "usage": {"total_tokens": 7}}),
        ("rerank", {"results": [{"index": 0, "relevance_score": 0.5}], "usage": {"total_tokens": 7}}),
        ("score", {"data": [{"index": 0, "score": 0.5}], "usage": {"prompt_tokens": 7}}),
    ],
)
def test_whole_answers_of_every_interface(api: Api, body: object) -> None:
    found = plain(body, api=api)
    assert (found.error, found.prompt_tokens, found.streamed) == (None, 7, False)
    assert found.output_tokens == (3 if api in ("completions", "chat") else None)


@pytest.mark.parametrize("completion_tokens", [-3, 0])
def test_impossible_usage_is_not_believed(completion_tokens: int) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": completion_tokens}
    found = stream([text("a"), text("b"), json.dumps({"choices": [], "usage": usage})])
    assert (found.error, found.usage_invalid, found.output_tokens, found.tokens) == (None, True, None, 2)


def test_the_key_is_taken_out_of_what_the_server_says() -> None:
    body = b"Incorrect API key provided: sk-secret"
    raw = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    found = read(exchange([raw]), "chat", secret="sk-secret")
    assert found.detail == "HTTP 401 No: Incorrect API key provided: ***"


@given(st.lists(st.integers(1, 2000), max_size=12))
def test_the_same_bytes_mean_the_same_however_they_are_cut(places: list[int]) -> None:
    events = [f"data: {text('tök' + chr(0x1F600))}\r\n\r\n".encode() for _ in range(3)]
    events += [b": ping\r\n\r\n", b"data: [DONE]\r\n\r\n"]
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw += b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"
    edges = sorted({0, len(raw), *(p for p in places if p < len(raw))})
    found = read(exchange([raw[a:b] for a, b in pairwise(edges)]), "completions")
    assert (found.error, len(found.token_ns), found.tokens) == (None, 3, 3)


@given(st.binary(max_size=300))
def test_hostile_bodies_are_failures_and_nothing_worse(body: bytes) -> None:
    for kind in (b"text/event-stream", b"application/json"):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
        assert read(exchange([head + body]), "chat").error is not None


def test_deeply_nested_json_is_a_failure() -> None:
    assert plain('{"choices":' + "[" * 100_000, api="chat").error == "wrong_content"

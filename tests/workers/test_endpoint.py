"""What a server answers: recorded answers of vLLM 0.32.0 are read, every other shape is one clear error.

The answers are of examples/models/tiny-qwen3 in bf16 to "The name of the file", and of MiniLM in fp32 to two texts,
each vector cut to its first three numbers.
"""

import copy
import json
import math
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from _contract import Failure
from _endpoint import LISTED, NotFinite, Server, question, rows, said, same_tokens, vectors

DATA = Path(__file__).parent / "data"
COMPLETION = json.loads((DATA / "vllm-0.32.0-completions.json").read_text())
EMBEDDINGS = json.loads((DATA / "vllm-0.32.0-embeddings.json").read_text())
IDS = [686, 867, 283, 270, 924]


def refused(call: Callable[..., object], *arguments: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        call(*arguments)
    return caught.value


def changed(change: Callable[[list[Any]], object]) -> dict[str, Any]:
    """The recorded completion with another list of positions."""
    answer = copy.deepcopy(COMPLETION)
    change(answer["choices"][0]["prompt_logprobs"])
    return answer


def test_each_token_but_the_first_is_predicted_from_those_before_it() -> None:
    found = rows(COMPLETION, IDS)
    assert len(found) == len(IDS) - 1
    for row, token, entry in zip(
        found, IDS[1:], COMPLETION["choices"][0]["prompt_logprobs"][1:], strict=True
    ):
        assert row.true == entry[str(token)]["logprob"]
        assert [value for _, value in row.best] == sorted((v for _, v in row.best), reverse=True)
        assert entry[str(row.best[0][0])]["rank"] == 1
        assert len(row.best) == LISTED
        assert set(row.known) == {int(name) for name in entry}


def test_a_token_below_the_most_likely_is_none_of_them() -> None:
    """vLLM adds the token that stands there; its log-probability bounds nothing."""
    extra = [len(entry) for entry in COMPLETION["choices"][0]["prompt_logprobs"][1:]]
    assert set(extra) == {LISTED, LISTED + 1}, "the recording has both kinds"
    for row, token, count in zip(rows(COMPLETION, IDS), IDS[1:], extra, strict=True):
        assert (token in dict(row.best)) == (count == LISTED)
        assert row.best[-1][1] >= row.true or count == LISTED


def test_equal_probabilities_are_ranked_by_token_as_the_reference_does() -> None:
    def tie(listed: list[Any]) -> None:
        ranked = sorted(listed[1].values(), key=lambda said: said["rank"])
        ranked[1]["logprob"] = ranked[0]["logprob"]

    best = rows(changed(tie), IDS)[0].best
    assert best[0][1] == best[1][1]
    assert best[0][0] < best[1][0]


@pytest.mark.parametrize("number", [None, math.nan, math.inf])
def test_a_number_that_is_not_finite_empties_its_row_alone(number: float | None) -> None:
    first = next(iter(COMPLETION["choices"][0]["prompt_logprobs"][2]))
    found = rows(changed(lambda listed: listed[2][first].update(logprob=number)), IDS)
    assert [bool(row.best) for row in found] == [True, False, True, True]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "no choice"),
        ([], "no choice"),
        ({"choices": []}, "no choice"),
        ({"choices": ["text"]}, "no choice"),
        ({"choices": [{"prompt_logprobs": "none"}]}, "no list of positions for 5 tokens"),
        (changed(lambda listed: listed.pop()), "4 positions for 5 tokens"),
        (changed(lambda listed: listed.append(listed[1])), "6 positions for 5 tokens"),
        (changed(lambda listed: listed.__setitem__(0, listed[1])), "predicts the first token"),
        (changed(lambda listed: listed.__setitem__(2, None)), "position 2 is no list"),
        (changed(lambda listed: listed.__setitem__(2, [1, 2])), "position 2 is no list"),
        (changed(lambda listed: listed[2].update(x={"logprob": -1})), "position 2 is no list"),
        (changed(lambda listed: listed[2].update({"5": {}})), "position 2 is no list"),
        (changed(lambda listed: listed[2].update({"5": {"logprob": "-1"}})), "position 2 is no list"),
        (changed(lambda listed: listed[3].pop("270")), "does not list the token 270"),
        (changed(lambda listed: listed.reverse() or listed.insert(0, listed.pop())), "does not list the token"),
    ],
)  # fmt: skip
def test_other_shapes_are_refused(answer: Any, words: str) -> None:
    error = refused(rows, answer, IDS)
    assert error.reference == "endpoint-answer"
    assert words in error.cause[0]


def test_a_server_without_log_probabilities_is_named() -> None:
    silent = {"choices": [{"text": "a"}]}
    null = {"choices": [{"text": "a", "prompt_logprobs": None}]}
    assert {refused(rows, answer, IDS).reference for answer in (silent, null)} == {"no-prompt-logprobs"}


@pytest.mark.parametrize("value", [3.5, -0.001])
def test_logits_are_not_taken_for_log_probabilities(value: float) -> None:
    """One above 0, or two that together are more than certain."""

    def as_logits(listed: list[Any]) -> None:
        for entry in list(listed[1].values())[:2]:
            entry["logprob"] = value

    assert refused(rows, changed(as_logits), IDS).reference == "not-log-probabilities"


def test_one_token_alone_has_nothing_to_predict() -> None:
    assert rows({"choices": [{"prompt_logprobs": [None]}]}, [7]) == []


def test_what_is_asked() -> None:
    assert question("m", (3, 4)) == {
        "model": "m", "prompt": [3, 4], "max_tokens": 1, "temperature": 0, "prompt_logprobs": 20,
    }  # fmt: skip


def test_vectors_come_in_the_order_of_their_texts() -> None:
    found = vectors(EMBEDDINGS, 2)
    assert [row[0] for row in found] == pytest.approx([-0.06277, 0.02588], abs=1e-5)
    turned = {**EMBEDDINGS, "data": EMBEDDINGS["data"][::-1]}
    assert vectors(turned, 2) == found
    unwritten = {"data": [{"index": 0, "embedding": [1.0, None]}]}
    assert math.isnan(vectors(unwritten, 1)[0][1])


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        EMBEDDINGS["data"][:1],
        [*EMBEDDINGS["data"], {"index": 2, "embedding": [1, 2, 3]}],
        [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}],
        [{"index": 0, "embedding": ["1"]}, {"index": 1, "embedding": ["2"]}],
        [{"index": 0, "embedding": [True]}, {"index": 1, "embedding": [True]}],
        [{"index": 0}, {"index": 1}],
    ],
)
def test_other_vectors_are_refused(data: Any) -> None:
    assert refused(vectors, {"data": data}, 2).reference == "endpoint-answer"


@pytest.mark.parametrize(
    ("own", "wanted", "same"),
    [
        ([1, 2, 3], [1, 2, 3], True),
        ([1, 2, 4], [1, 2, 3], False),
        ([1, 2, 3, 4], [1, 2, 3], False),
        ([1, 2, 3, 4, 5, 9], [1, 2, 3, 9], True),
        ([1, 2, 8, 4, 5, 9], [1, 2, 3, 9], False),
        ([1, 2], [1, 2, 3, 9], False),
        (["a"], [1], False),
    ],
)
def test_a_text_that_was_cut_is_compared_up_to_there(own: list[Any], wanted: list[int], same: bool) -> None:
    assert same_tokens(own, wanted, longest=4) == same


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "too\\nlong", "code": 400}}', "too long"),
        (b'{"message": "no"}', "no"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>Bad \x1b[31mgateway</html>", "<html>Bad ?[31mgateway</html>"),
        (b'["odd"]', '["odd"]'),
        (b"", "nothing"),
    ],
)
def test_what_an_error_says_is_one_line(body: bytes, words: str) -> None:
    assert said(body) == words


# -- over a real socket


@contextmanager
def serving(status: int, body: bytes) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers everything alike and remembers what it was asked."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = json.loads(self.rfile.read(length)) if length else None
            seen.append({"path": self.path, "key": self.headers.get("Authorization"), "body": asked})
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()


def test_an_answer_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(200, b'{"a": 1}') as (url, seen):
        assert Server(url, key="secret").ask("/x", {"b": 2}) == {"a": 1}
        assert Server(url.replace("127.0.0.1", "localhost")).ask("/y") == {"a": 1}
    assert seen == [
        {"path": "/x", "key": "Bearer secret", "body": {"b": 2}},
        {"path": "/y", "key": None, "body": None},
    ]


@pytest.mark.parametrize(
    ("status", "body", "reference", "cause"),
    [
        (400, b'{"error": {"message": "greater than max allowed: 5"}}', "endpoint-refused", "max allowed: 5"),
        (404, b'{"detail": "Not Found"}', "endpoint-refused", "Not Found"),
        (500, b"boom", "endpoint-refused", "boom"),
        (200, b"<html>", "endpoint-answer", "<html>"),
        (200, b"[" * 200_000, "endpoint-answer", "[[["),
    ],
)
def test_what_is_no_answer(status: int, body: bytes, reference: str, cause: str) -> None:
    with serving(status, body) as (url, _):
        error = refused(Server(url, key="secret").ask, "/v1/completions")
    assert error.reference == reference
    assert cause in error.cause[0]
    assert "secret" not in f"{error.message} {error.cause} {error.hint}"


def test_a_missing_key_names_its_variable() -> None:
    with serving(401, b'{"error": "unauthorized"}') as (url, _):
        assert "MOPT_API_KEY" in refused(Server(url).ask, "/v1/models").hint[0]


def test_numbers_that_json_cannot_hold_are_told_from_a_bad_request() -> None:
    """As vLLM 0.32.0 answered a model with one weight that is NaN."""
    body = b'{"error": {"message": "Out of range float values are not JSON compliant", "code": 400}}'
    with serving(400, body) as (url, _):
        assert isinstance(refused(Server(url).ask, "/v1/completions"), NotFinite)


def test_what_not_every_server_has_may_be_missing() -> None:
    with serving(404, b'{"detail": "Not Found"}') as (url, _):
        assert Server(url).ask_if_there("/tokenize", {}) is None


def test_a_server_that_is_gone() -> None:
    with serving(200, b"{}") as (url, _):
        pass
    assert refused(Server(url).ask, "/v1/models").reference == "endpoint-gone"


def test_a_server_that_never_answers() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = Server(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        assert refused(server.ask, "/v1/models").reference == "endpoint-slow"


def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    import _endpoint

    monkeypatch.setattr(_endpoint, "LARGEST_ANSWER", 1000)
    with serving(200, b" " * 5000) as (url, _):
        assert "more than an answer" in refused(Server(url).ask, "/x").message


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:8000", "http://example.org:80", "http://127.0.0.1", "http://127.0.0.2:80", "file:///x"],
)  # fmt: skip
def test_only_this_machine_is_asked(url: str) -> None:
    assert refused(Server, url).reference == "usage"


def test_the_model_by_its_name() -> None:
    body = json.dumps({"data": [{"id": "base"}, {"id": "adapter"}, "odd"]}).encode()
    with serving(200, body) as (url, _):
        assert Server(url).model(None)["id"] == "base"
        assert Server(url).model("adapter")["id"] == "adapter"
        assert refused(Server(url).model, "other").cause == ("it has base, adapter",)
    with serving(200, b'{"data": null}') as (url, _):
        assert refused(Server(url).model, None).cause == ("it has no model at all",)

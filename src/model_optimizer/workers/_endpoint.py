"""A server on this machine that speaks the OpenAI interface: asking it, and reading what it answers.

Standard library only. What the server sends is bounded in size and time and believed only where it has the
right shape: a list that is one too short would compare every token with its neighbour.
"""

import http.client
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from _contract import Failure, brief, fail

LISTED = 20
"""Log-probabilities asked for at each position: the most that vLLM gives unless started with more."""

REQUEST_S = 120.0
"""How long one request may take. ASSUMED: 256 tokens take 0.1 s of a small model on 2 cores."""

LARGEST_ANSWER = 64 << 20
CHUNK = 1 << 16
LOOPBACK = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
WHOLE = 1.01
"""Probabilities of some tokens add up to no more than this, rounding included."""

NOT_JSON = "Out of range float values are not JSON compliant"
"""What Python's JSON says of NaN; vLLM 0.32.0 hands it on with status 400."""


class NotFinite(Failure):
    """The server's numbers are NaN or infinite, so that it cannot write them down."""


class Row(NamedTuple):
    """What the server says of one predicted token, in nats.

    `best` holds its most likely tokens, most likely first; `known` all that it lists, which the token that
    really follows is always among. Both are empty where a number is NaN or infinite.
    """

    true: float
    best: list[tuple[int, float]]
    known: Mapping[int, float]


NAN = Row(0.0, [], {})


class Server:
    """`url` has no path. Each request has a connection of its own and a time limit; proxies are not asked."""

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = REQUEST_S) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in LOOPBACK or not parts.port:
            fail("usage", f"`{url}` is no server on this machine", hint=["write http://127.0.0.1:PORT"])
        self._url = url
        self._host = LOOPBACK[parts.hostname]
        self._port = parts.port
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """GET, or POST with a JSON body; the JSON that comes back. Fails on anything but status 200."""
        status, content = self._exchange(path, body)
        if status != 200:
            self._refused(path, status, content)
        return self._parsed(path, content)

    def ask_if_there(self, path: str, body: Mapping[str, Any]) -> Any:
        """The same for a path that not every server has; None when this one does not answer it."""
        status, content = self._exchange(path, body)
        return self._parsed(path, content) if status == 200 else None

    def model(self, wanted: str | None) -> dict[str, Any]:
        """The card of the model by this name; of the first one when `wanted` is None."""
        answer = self.ask("/v1/models")
        listed = answer.get("data") if isinstance(answer, dict) else None
        cards = [c for c in listed if isinstance(c, dict) and isinstance(c.get("id"), str)] if listed else []
        found = next((card for card in cards if wanted in (None, card["id"])), None)
        if found is None:
            names = ", ".join(card["id"] for card in cards) or "no model at all"
            fail("endpoint-model", f"the server has no model `{wanted or ''}`", [f"it has {names}"])
        return found

    def _exchange(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        until = time.monotonic() + self._timeout_s
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            if body is None:
                connection.request("GET", path, headers=self._headers)
            else:
                headers = {**self._headers, "Content-Type": "application/json"}
                connection.request("POST", path, json.dumps(body).encode(), headers)
            with connection.getresponse() as answer:
                return answer.status, self._read(answer, until)
        except TimeoutError:
            self._too_slow()
        except (OSError, http.client.HTTPException) as error:
            fail(
                "endpoint-gone",
                f"the server at {self._url} does not answer",
                [brief(error)],
                ["look at its log: it may have ended"],
            )
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse, until: float) -> bytes:
        content = bytearray()
        while chunk := answer.read1(CHUNK):
            content += chunk
            if len(content) > LARGEST_ANSWER:
                fail("endpoint-answer", f"the server at {self._url} sends more than an answer can hold")
            if time.monotonic() > until:
                self._too_slow()
        return bytes(content)

    def _too_slow(self) -> NoReturn:
        fail(
            "endpoint-slow",
            f"the server at {self._url} did not answer one request within {self._timeout_s:g} s",
            hint=["verify it while nobody else uses it"],
        )

    def _refused(self, path: str, status: int, content: bytes) -> NoReturn:
        message = said(content)
        if NOT_JSON in message:
            raise NotFinite(
                "endpoint-not-finite", f"{path} of the server at {self._url} gives NaN or infinity", [message]
            )
        hints = {
            401: ["put the server's key into the environment variable MOPT_API_KEY"],
            404: ["a server that generates has /v1/completions, one that embeds has /v1/embeddings"],
            500: ["the server's log says why"],
        }
        fail(
            "endpoint-refused",
            f"the server at {self._url} refused {path} with status {status}",
            [message],
            hints.get(status, ()),
        )

    def _parsed(self, path: str, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            fail("endpoint-answer", f"the answer of {self._url}{path} is not JSON", [said(content)])


def said(content: bytes) -> str:
    """What an error's body says, in one line."""
    text = content[:2000].decode(errors="replace")
    try:
        body = json.loads(content)
        error = body.get("error", body)
        text = str(error.get("message") or error.get("detail") or text)
    except (ValueError, AttributeError, RecursionError):
        pass
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in line[:300]) or "nothing"


def question(model: str, ids: Sequence[int]) -> dict[str, Any]:
    """The request for what a model predicts at each of these tokens. One more token must be generated."""
    return {
        "model": model,
        "prompt": list(ids),
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": LISTED,
    }


def continuation(model: str, ids: Sequence[int], count: int) -> dict[str, Any]:
    """The request for a greedy continuation that ends at no token. vLLM gives the ids when asked."""
    return {
        "model": model,
        "prompt": list(ids),
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def continued(answer: Any, count: int) -> list[int] | None:
    """The token ids of a continuation; None where the server gives none, or ended before it."""
    try:
        found = answer["choices"][0].get("token_ids")
    except (KeyError, IndexError, TypeError, AttributeError):
        _misshapen("it holds no choice")
    if not isinstance(found, list) or len(found) != count:
        return None
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in found):
        _misshapen("its token ids are no whole numbers")
    return found


def rows(answer: Any, ids: Sequence[int]) -> list[Row]:
    """What is predicted for every token of `ids` but the first, which nothing stands before."""
    try:
        listed = answer["choices"][0].get("prompt_logprobs")
    except (KeyError, IndexError, TypeError, AttributeError):
        _misshapen("it holds no choice")
    if listed is None:
        fail(
            "no-prompt-logprobs",
            "the server gives no log-probabilities of the prompt",
            hint=["vLLM gives them; of other servers the artefact can be verified that they load"],
        )
    if not isinstance(listed, list) or len(listed) != len(ids):
        count = len(listed) if isinstance(listed, list) else "no list of"
        _misshapen(f"{count} positions for {len(ids)} tokens")
    if listed[0] is not None:
        _misshapen("it predicts the first token, which nothing stands before")
    return [_row(entry, int(ids[at]), at) for at, entry in enumerate(listed[1:], 1)]


def _row(entry: Any, true: int, at: int) -> Row:
    try:
        known = {int(token): _number(said["logprob"]) for token, said in entry.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        _misshapen(f"position {at} is no list of log-probabilities")
    if true not in known:
        _misshapen(f"position {at} does not list the token {true} that stands there")
    if not all(map(math.isfinite, known.values())):
        return NAN
    best = sorted(known.items(), key=lambda pair: (-pair[1], pair[0]))
    if len(known) > LISTED:
        # The token that stands there comes on top of the most likely ones, from anywhere below them.
        best = [pair for pair in best if pair[0] != true]
    if best[0][1] > math.log(WHOLE) or sum(math.exp(x) for x in known.values()) > WHOLE:
        fail(
            "not-log-probabilities",
            "what the server calls log-probabilities add up to more than 1",
            [f"position {at}"],
            ["vLLM gives log-probabilities with --logprobs-mode raw_logprobs, its default"],
        )
    return Row(known[true], best, known)


def vectors(answer: Any, count: int) -> list[list[float]]:
    """The vectors of one answer of /v1/embeddings in the order of its inputs; NaN stays NaN."""
    try:
        data = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
        found = [[_number(x) for x in data.pop(index)] for index in range(count)]
    except (KeyError, TypeError, ValueError):
        _misshapen(f"it does not hold a vector for each of {count} texts")
    if data or not found[0] or len({len(vector) for vector in found}) != 1:
        _misshapen(f"it holds other vectors than {count} of one length")
    return found


def same_tokens(own: list[Any], wanted: list[int], longest: int) -> bool:
    """Whether a server cuts a whole text as the reference did, which keeps at most `longest` tokens.

    Of one that was cut the last token is left out: it may be one that ends a text.
    """
    if len(wanted) < longest:
        return own == wanted
    kept = len(wanted) - 1
    return own[:kept] == wanted[:kept]


def _number(value: Any) -> float:
    """JSON has no NaN: some servers write null instead, some the word itself."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _misshapen(why: str) -> NoReturn:
    fail(
        "endpoint-answer",
        "the server's answer has not the shape that vLLM's has",
        [why],
        ["vLLM 0.32.0 answers as is expected; other servers and versions may not"],
    )

"""Layer `service` beside servers whose fault is in one answer of many, and right ones that look odd."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from model_optimizer.core import MoptError, Slo, Verdict
from model_optimizer.flow import verify_service as flow
from model_optimizer.flow.verify_inside import Inside
from model_optimizer.flow.verify_service_ask import Asker
from model_optimizer.verify.service import verify_service
from model_optimizer.verify.service_seen import Said, Seen, Usage
from model_optimizer.verify.service_texts import damage, miscounted

from .odd_server import OddServer, Turn


def look(server: OddServer, **asked: Any) -> dict[str, str]:
    """The outcome of each comparison that did not pass."""
    with server:
        verdict = flow.verify(
            server.url, Inside(**{"requests": 48, **asked}), progress=lambda _t, _s: None
        )  # fmt: skip
    return failing(verdict)


def failing(verdict: Verdict) -> dict[str, str]:
    """By metric, without what hangs on the clock of a busy machine."""
    timed = ("steady", "starvation", "token_time_drift")
    return {
        c.metric: c.because or ""
        for c in verdict.comparisons
        if c.outcome != "pass" and c.metric not in timed
    }


def among(turn: Turn, every: int = 10) -> bool:
    """One of `every` requests, behind the sixteen that are asked alone."""
    return turn.number > 16 and turn.number % every == 0


# Right servers.


class Cold(OddServer):
    """Warms up: the first request of all, and the first ones that run together."""

    def pause(self, turn: Turn, at: int) -> float:
        cold = turn.number == 1 or 17 <= turn.number <= 24
        return 1.5 if cold and at == 0 else super().pause(turn, at)


class Merged(OddServer):
    """Sends three tokens at a time when it is busy."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        size = 3 if turn.others else 1
        for at in range(0, len(pieces), size):
            time.sleep(self.pause(turn, at))
            some = pieces[at : at + size]
            choice = self.choice(turn, at, "".join(some), last=at + size >= len(pieces))
            if "logprobs" in choice:
                choice["logprobs"]["tokens"] = some
            yield json.dumps({"choices": [choice]})
        yield json.dumps({"choices": [], "usage": self.usage(turn, pieces)})
        yield "[DONE]"


class Ties(OddServer):
    """Where two tokens are about as likely, the batch decides."""

    def gap(self, turn: Turn, at: int) -> float | None:
        return 0.01 if at == 9 else 5.0

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        return [*own[:9], " other", *own[10:]] if turn.others else own


class Mute(OddServer):
    """Tells neither log-probabilities nor numbers of tokens, and does not know the option for them."""

    def gap(self, turn: Turn, at: int) -> float | None:
        return None

    def status(self, turn: Turn) -> int:
        return 400 if "stream_options" in turn.body and "ignore_eos" in turn.body else 200


class Plain(OddServer):
    """Refuses log-probabilities by name, as a server of `mopt serve` does."""

    def status(self, turn: Turn) -> int:
        return 400 if "logprobs" in turn.body else 200


class Ends(OddServer):
    """Does not know `ignore_eos`: answers have their own lengths."""

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        return own[: 5 + len(turn.prompt) % 7]

    def choice(self, turn: Turn, at: int, piece: str, *, last: bool) -> dict[str, Any]:
        made = super().choice(turn, at, piece, last=last)
        return {**made, "finish_reason": "stop" if last else None}


class Talks(OddServer):
    """Comments, empty pieces and events without choices between the pieces."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        for line in super().events(turn, pieces):
            yield json.dumps({"choices": []})
            yield json.dumps({"choices": [{"index": 0, "text": ""}], "usage": None})
            yield line


@pytest.mark.parametrize("kind", [OddServer, Cold, Merged, Ties, Mute, Plain, Ends, Talks])
def test_right_servers_are_not_called_wrong(kind: type[OddServer]) -> None:
    assert look(kind()) == {}


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (OddServer, {"ignore_eos", "logprobs", "stream_options"}),
        (Mute, {"ignore_eos", "logprobs"}),
        (Plain, {"ignore_eos", "stream_options"}),
    ],
)
def test_a_server_is_asked_for_what_it_knows(kind: type[OddServer], left: set[str]) -> None:
    with kind() as server:
        asker = Asker(server.url, None)
        assert asker.ask_plainer().error is None
    assert set(asker.more) == left


class Refuses(OddServer):
    def status(self, turn: Turn) -> int:
        return 400


def test_the_words_of_a_refusal_are_kept() -> None:
    with Refuses() as server, pytest.raises(MoptError) as found:
        flow.verify(server.url, Inside(), progress=lambda _t, _s: None)
    assert found.value.cause == tuple(
        f"/v1/{api}: status 400: told to fail" for api in ("completions", "embeddings")
    )


# Wrong ones: what is named is in the words of the verdict.


class Foreign(OddServer):
    """A few tokens of another one's answer within its own."""

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        if not among(turn):
            return own
        others = self.words(self.turns[turn.number - 2].prompt, len(own))
        return [*own[:8], *others[8:12], *own[12:]]


class Lost(OddServer):
    """A piece is lost on the way."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        for at, line in enumerate(super().events(turn, pieces)):
            if at != 10 or not among(turn):
                yield line


class Twice(OddServer):
    """A piece comes twice."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        for at, line in enumerate(super().events(turn, pieces)):
            yield line
            if at == 10 and among(turn):
                yield line


class Shuffled(OddServer):
    """The right pieces in another order."""

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        return [*own[:6], own[8], own[6], own[7], *own[9:]] if among(turn) else own


class Early(OddServer):
    """Ends half-way, as if that were the end."""

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        return own[:12] if among(turn) else own


class Empty(OddServer):
    """Answers nothing at all."""

    def pieces(self, turn: Turn) -> list[str]:
        return [] if among(turn) else super().pieces(turn)


class Echo(OddServer):
    """Its prompt stands before the answer."""

    def pieces(self, turn: Turn) -> list[str]:
        own = super().pieces(turn)
        return [f" {word}" for word in turn.prompt.split()][:8] + own[8:] if among(turn) else own


class Cut(OddServer):
    """The connection ends within a stream."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        for at, line in enumerate(super().events(turn, pieces)):
            yield None if at == 10 and among(turn) else line


class Says(OddServer):
    """An error in the stream, and then its regular end."""

    def events(self, turn: Turn, pieces: list[str]) -> Iterator[str | None]:
        for at, line in enumerate(super().events(turn, pieces)):
            if at == 10 and among(turn):
                yield json.dumps({"error": {"message": "out of memory", "code": 500}})
                yield "[DONE]"
                return
            yield line


class Busy(OddServer):
    """One of forty is refused."""

    def status(self, turn: Turn) -> int:
        return 503 if turn.number % 40 == 0 else 200


@pytest.mark.parametrize(
    ("kind", "metric", "says"),
    [
        (Foreign, "damaged_streams", "where the model is sure, by 5.0 nats"),
        (Lost, "damaged_streams", "tokens are missing in the stream"),
        (Twice, "damaged_streams", "the stream holds tokens too many"),
        (Shuffled, "damaged_streams", "the pieces come in another order"),
        (Early, "damaged_streams", "tokens are missing in the stream"),
        (Empty, "damaged_streams", "the answer ends early"),
        (Echo, "damaged_streams", "where the model is sure, by 5.0 nats"),
        (Cut, "error_rate", "or cut off"),
        (Says, "error_rate", "an error within the stream: out of memory"),
        (Busy, "error_rate", "status 503"),
    ],
)
def test_a_fault_in_one_answer_of_many(kind: type[OddServer], metric: str, says: str) -> None:
    found = look(kind())
    assert says in found[metric], found


@pytest.mark.parametrize("kind", [Lost, Shuffled, Early, Empty])
def test_faults_that_show_without_log_probabilities(kind: type[OddServer]) -> None:
    class Silent(kind):  # pyright: ignore[reportGeneralTypeIssues]
        def gap(self, turn: Turn, at: int) -> float | None:
            return None

    found = look(Silent())
    assert kind is Lost or "damaged_streams" in found, found
    assert found, kind


class Miscounts(OddServer):
    def __init__(self, part: str, by: int, *, always: bool = True) -> None:
        super().__init__()
        self.part, self.by, self.always = part, by, always

    def usage(self, turn: Turn, pieces: list[str]) -> dict[str, int]:
        right = super().usage(turn, pieces)
        return {**right, self.part: right[self.part] + self.by} if self.always or among(turn) else right


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Miscounts("total_tokens", 1), "tokens are said to be"),
        (Miscounts("completion_tokens", -1), "tokens are said to be"),
        (Miscounts("prompt_tokens", 3, always=False), "tokens are said to be"),
    ],
)
def test_numbers_of_tokens_that_are_wrong(server: OddServer, says: str) -> None:
    assert says in look(server)["token_counts"]


class Consistent(Miscounts):
    """Wrong in a way that adds up."""

    def usage(self, turn: Turn, pieces: list[str]) -> dict[str, int]:
        found = super().usage(turn, pieces)
        return {**found, "total_tokens": found["prompt_tokens"] + found["completion_tokens"]}


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Consistent("completion_tokens", -1), "24 tokens came, 23 are counted"),
        (Consistent("prompt_tokens", 3, always=False), "under load"),
    ],
)
def test_numbers_that_add_up_and_are_wrong(server: OddServer, says: str) -> None:
    assert says in look(server)["token_counts"]


class Leaks(OddServer):
    """Keeps a little of the KV cache of each request for good."""

    def kv(self) -> float:
        return 0.002 * len(self.turns)


class Holds(OddServer):
    """Counts a request that came beside others as running for ever."""

    def metrics(self) -> str:
        stuck = sum(1 for turn in self.turns if among(turn, 20))
        return f"vllm:num_requests_running {stuck}\nvllm:kv_cache_usage_perc 0\n"


def test_what_a_server_never_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "IDLE_S", 0.2)
    assert "it was" in look(Leaks())["kv_held"]
    assert look(Holds())["left_running"] == "requests never end"


class Same(OddServer):
    """Says one thing to everybody."""

    def pieces(self, turn: Turn) -> list[str]:
        return self.words("", turn.tokens)


def test_one_answer_to_everybody_shows_no_mixed_streams() -> None:
    assert "could not be told apart" in look(Same())["mixed_streams"]


class Dies(OddServer):
    """Of vectors; gone when the load begins."""

    api = "embeddings"

    def status(self, turn: Turn) -> int:
        return 500 if len(self.turns) > 16 + 16 + 48 else 200


def test_a_server_that_answers_no_load_has_failed() -> None:
    assert "the load: " in look(Dies())["error_rate"]


# Of two answers.

OWN = Said(
    prompt=0, pieces=("a", "b", "c", "d"), gaps=(5.0, 0.01, 5.0, 5.0), tokens=4, asked=4, ended="length"
)
SURELY = "it leaves the answer alone where the model is sure, by 5.0 nats"


@pytest.mark.parametrize(
    ("own", "got", "why"),
    [
        (OWN, OWN, None),
        (OWN, replace(OWN, pieces=("a", "c", "b", "d")), None),  # a tie that leads to the same letters
        (OWN, replace(OWN, pieces=("a", "b", "d", "c")), "the pieces come in another order"),
        (OWN, replace(OWN, pieces=("a", "b"), tokens=2), "tokens are missing in the stream"),
        (OWN, replace(OWN, pieces=("a",), tokens=1, ended="stop"), None),  # the tie is with the end
        (OWN, replace(OWN, pieces=("a", "b"), tokens=2, ended="stop"), SURELY),
        (OWN, replace(OWN, pieces=("a", "b"), tokens=None), "the answer ends early"),
        (OWN, replace(OWN, pieces=("ab", "c"), tokens=None), SURELY),
        # Tokens of all pieces so far with each piece: they count nothing.
        (replace(OWN, tokens=10), replace(OWN, pieces=("a", "x", "y", "z"), tokens=9), None),
        (replace(OWN, gaps=()), replace(OWN, pieces=("x", "y", "z", "w")), None),
    ],
)
def test_what_rounding_can_do_and_what_not(own: Said, got: Said, why: str | None) -> None:
    assert damage(own, got) == why


USED = Usage(prompt=9, completion=4, total=13)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (replace(OWN, usage=USED), None),
        (replace(OWN, usage=USED, tokens=3, ended="stop"), None),  # the token that ends it has no piece
        (replace(OWN, usage=replace(USED, completion=5, total=14), tokens=None), "4 tokens were asked for"),
        (replace(OWN, usage=replace(USED, total=None)), None),
    ],
)
def test_counts_that_are_possible(said: Said, why: str | None) -> None:
    found = miscounted(said, replace(OWN, usage=USED))
    assert found is None if why is None else str(found).startswith(why)


# By the clock, without one.


def timed(seconds: list[float], again: float | None = None, **more: Any) -> dict[str, str]:
    """The outcomes of answers that took so long, eight at a time, and as long when asked `again`."""
    said = [Said(prompt=n % 4, pieces=("a", "b"), seconds=s) for n, s in enumerate(seconds)]
    if again is not None:
        more["again"] = tuple(replace(s, seconds=again) for s in said)
    seen = Seen(
        url="u", concurrency=8, markers=("w", "x", "y", "z"), alone=tuple(said[:4]), together=tuple(said),
        **more,
    )  # fmt: skip
    return {c.metric: c.outcome for c in verify_service(seen, Slo()).comparisons}


USUAL = [0.2 + 0.01 * (n % 5) for n in range(56)]


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        ([0.2] * 8 + USUAL, "pass"),
        ([3.5] * 8 + USUAL, "pass"),  # warms up: all that run beside each other wait
        ([0.2] * 7 + [3.5] + USUAL, "fail"),  # one of them waits for the others
        ([0.2] * 20 + [3.5] + USUAL[:40], "fail"),
        ([0.01] * 20 + [0.9] + [0.01] * 40, "pass"),  # nobody calls that starved
    ],
)
def test_one_stream_that_is_starved(seconds: list[float], outcome: str) -> None:
    assert timed(seconds)["starvation"] == outcome


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        ([1 + n / 63 for n in range(64)], "fail"),  # twice the time at the end
        ([1 + n / 300 for n in range(64)], "pass"),
        ([1.0, 1.6] * 32, "pass"),
        ([3.5] * 8 + USUAL, "pass"),
        ([1.0] * 12 + [2.0] * 12, "fail"),
        ([0.3] * 8 + [1.0] * 24, "pass"),  # the first ones were served alone
    ],
)
def test_time_per_token_that_grows_with_time(seconds: list[float], outcome: str) -> None:
    assert timed(seconds)["token_time_drift"] == outcome


@pytest.mark.parametrize(
    ("again", "machine_slower", "outcome"),
    [(1.0, 1.0, "pass"), (2.0, 1.0, "fail"), (2.0, 1.2, "fail"), (2.0, 2.0, "undecided"), (4.0, 1.3, "fail")],
)
def test_a_machine_that_is_slower_itself_decides_nothing(
    again: float, machine_slower: float, outcome: str
) -> None:
    found = timed([1.0] * 32 + [2.0] * 32, again, machine_slower=machine_slower)
    assert found["token_time_drift"] == outcome

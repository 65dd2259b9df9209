"""Who decodes when, and when text may leave: the parts of the servers that need no engine."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_optimizer.workers as workers

sys.path.append(str(Path(workers.__file__).parent))

from _serve_batches import groups
from _serve_decode import Decoder, Decoding, Limits, Step, grouped
from _serve_text import Stops


class Counting:
    """A backend whose tokens are 0, 1, 2, ... for each sequence. Keeps what was decoded together."""

    max_model_len, vocabulary, batches = 1000, 1000, True

    def __init__(self, fails_at: int | None = None) -> None:
        self.cohorts: list[list[Decoding]] = []
        self.log: list[tuple[int, int]] = []
        self.dropped: list[Decoding] = []
        self.fails_at = fails_at

    def begin(self, group: Sequence[Decoding]) -> "Cohort":
        self.cohorts.append(list(group))
        return Cohort(self, list(group))


class Cohort:
    def __init__(self, backend: Counting, group: list[Decoding]) -> None:
        self.backend, self.group, self.count = backend, group, 0
        self.number = len(backend.cohorts) - 1

    def step(self) -> list[Step]:
        if self.backend.fails_at == self.count:
            raise RuntimeError("the kernel failed")
        self.backend.log.append((self.number, self.count))
        steps = [
            Step(d, self.count, "length" if self.count + 1 == d.max_tokens else None) for d in self.group
        ]
        self.group = [d for d in self.group if self.count + 1 < d.max_tokens]
        self.count += 1
        return steps

    def drop(self, decoding: Decoding) -> None:
        self.backend.dropped.append(decoding)
        self.group.remove(decoding)


class Listener:
    """Collects what is delivered, and can be waited for."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._changed = threading.Condition()

    def __call__(self, steps: list[Step]) -> None:
        with self._changed:
            self.steps += steps
            self._changed.notify_all()

    def wait_for(self, finished: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: sum(bool(s.finish) for s in self.steps) >= finished, 10)
        assert done

    def tokens(self, decoding: Decoding) -> list[int | None]:
        return [s.token for s in self.steps if s.decoding is decoding]


def decoding(tokens: int = 3, prompt: int = 4, **more: float) -> Decoding:
    return Decoding(prompt=[1] * prompt, max_tokens=tokens, **more)  # type: ignore[arg-type]


def run(backend: Counting, asked: list[Decoding], **limits: int) -> Listener:
    listener = Listener()
    decoder = Decoder(backend, Limits(**limits), listener)
    decoder.submit(asked)
    decoder.start()
    listener.wait_for(len(asked))
    decoder.stop()
    return listener


def test_those_that_wait_together_begin_together_and_end_alone() -> None:
    backend, asked = Counting(), [decoding(2), decoding(5), decoding(3)]
    listener = run(backend, asked, running=8)
    assert len(backend.cohorts) == 1
    assert [len(listener.tokens(d)) for d in asked] == [2, 5, 3]


def test_no_more_run_than_allowed_and_the_first_come_first() -> None:
    backend, asked = Counting(), [decoding(2) for _ in range(5)]
    run(backend, asked, running=2)
    assert [d for cohort in backend.cohorts for d in cohort] == asked
    assert max(len(cohort) for cohort in backend.cohorts) == 2


def test_cohorts_take_turns() -> None:
    """Two that may not share a batch, since their prompts differ too much, both go on."""
    backend, asked = Counting(), [decoding(3, 4), decoding(3, 400)]
    run(backend, asked, running=2)
    assert backend.log == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_one_that_nobody_waits_for_is_dropped() -> None:
    backend, listener = Counting(), Listener()
    gone, stays = decoding(10**9), decoding(50)
    decoder = Decoder(backend, Limits(running=4), listener)
    decoder.submit([gone, stays])
    decoder.start()
    listener.wait_for(1)
    decoder.cancel([gone])
    late = decoding(2)
    decoder.submit([late])
    listener.wait_for(2)
    decoder.stop()
    assert backend.dropped == [gone]
    assert listener.tokens(late) == [0, 1]


def test_one_that_was_cancelled_while_it_waited_never_begins() -> None:
    gone, stays = decoding(), decoding()
    gone.cancelled = True
    backend, listener = Counting(), Listener()
    decoder = Decoder(backend, Limits(running=4), listener)
    decoder.submit([gone, stays])
    decoder.start()
    listener.wait_for(1)
    decoder.stop()
    assert backend.cohorts == [[stays]]


def test_a_failure_is_told_to_its_own_requests_and_the_server_goes_on() -> None:
    backend, listener = Counting(fails_at=1), Listener()
    decoder = Decoder(backend, Limits(running=4), listener)
    first = decoding(5)
    decoder.submit([first])
    decoder.start()
    listener.wait_for(1)
    assert listener.steps[-1].finish == "error"
    assert listener.steps[-1].because == "RuntimeError: the kernel failed"
    assert not decoder.alive
    backend.fails_at = None
    decoder.submit([decoding(1)])
    listener.wait_for(2)
    assert decoder.alive
    decoder.stop()
    assert not decoder.alive


def test_sampled_ones_decode_alone() -> None:
    """The batches of the engine have one random stream for all."""
    asked = [decoding(), decoding(temperature=1.0), decoding()]
    assert grouped(asked, 1000, batches=True) == [[asked[0], asked[2]], [asked[1]]]
    assert grouped(asked, 1000, batches=False) == [[d] for d in asked]


def test_a_group_pads_little_and_stays_within_its_tokens() -> None:
    assert groups([10, 500, 12, 520], 2048) == [[0, 2], [1, 3]]
    assert groups([500] * 5, 1000) == [[0, 1], [2, 3], [4]]
    assert groups([5000, 1], 1000) == [[1], [0]]
    assert groups([1] * 5, 1000, most=2) == [[0, 1], [2, 3], [4]]
    assert groups([], 1000) == []


@given(st.lists(st.integers(1, 3000), max_size=40), st.integers(1, 5000))
def test_every_sequence_is_in_one_group(lengths: list[int], most: int) -> None:
    found = groups(lengths, most)
    assert sorted(i for group in found for i in group) == list(range(len(lengths)))
    for group in found:
        held = [lengths[i] for i in group]
        assert len(group) == 1 or len(group) * max(held) <= most
        assert max(held) <= 1.25 * min(held) + 16


# -- stop strings


def feed(stops: Stops, pieces: list[str]) -> str:
    out = ""
    for piece in pieces:
        out += stops.add(piece)
        if stops.met:
            return out
    return out + stops.end()


@pytest.mark.parametrize(
    ("stop", "pieces", "text", "met"),
    [
        ([], ["a", "b"], "ab", False),
        (["END"], ["so ", "E", "N", "D and more"], "so ", True),
        (["END"], ["so ", "E", "N", "Q"], "so ENQ", False),
        (["END"], ["so E"], "so E", False),
        (["b", "ab"], ["xab"], "x", True),
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb", True),
        (["aab"], ["aa", "ab"], "a", True),
        ([""], ["a"], "a", False),
    ],
)
def test_text_ends_before_a_stop_string(stop: list[str], pieces: list[str], text: str, met: bool) -> None:
    stops = Stops(stop)
    assert feed(stops, pieces) == text
    assert stops.met is met


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
    st.lists(st.text("abc", max_size=3), max_size=8),
)
def test_pieces_give_what_the_whole_text_would(stop: list[str], pieces: list[str]) -> None:
    """Cut anywhere, the text that leaves is the same, as soon as a stop is complete at one place only."""
    whole = "".join(pieces)
    got = feed(Stops(stop), pieces)
    ends = [whole.find(s) for s in stop if s in whole]
    if not ends:
        assert got == whole
    else:
        assert whole.startswith(got)
        assert not any(s in got for s in stop)

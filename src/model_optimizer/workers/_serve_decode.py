"""Who decodes when: waiting requests become cohorts, cohorts take turns, one token each.

A cohort is a group of sequences that a backend decodes together. Requests that wait when a step ends
begin at once, as a cohort of their own, so that nobody waits for a stranger's answer to end. Cohorts of
several exist because the CPU runtime of onnxruntime-genai 0.18 batches only requests that begin together
(its engine takes no newcomers into a running batch without paged attention, which has no CPU kernel).

Everything here runs in one thread of the server; texts and sockets are the event loop's.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from _serve_batches import groups

Finish = Literal["stop", "length", "error"]


@dataclass(eq=False, slots=True, kw_only=True)
class Decoding:
    """One sequence to decode: token ids in, at most `max_tokens` out.

    Temperature 0 takes the most likely token. With `ignore_eos` the end-of-sequence token cannot be
    chosen, so that exactly `max_tokens` come out. `cancelled` is set by anyone who no longer listens.
    """

    prompt: list[int]
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    cancelled: bool = False


class Step(NamedTuple):
    """What one step brought one sequence. `token` is None when nothing but the end came."""

    decoding: Decoding
    token: int | None
    finish: Finish | None = None
    because: str | None = None


class Cohort(Protocol):
    """Sequences that are decoded together. The first steps read the prompts."""

    def step(self) -> list[Step]:
        """One token for each sequence that is still going; none while a long prompt is being read."""
        ...

    def drop(self, decoding: Decoding) -> None:
        """Forget a sequence that nobody waits for."""
        ...


class Backend(Protocol):
    """A loaded model. `max_model_len` counts prompt and answer together."""

    max_model_len: int
    vocabulary: int
    batches: bool

    def begin(self, group: Sequence[Decoding]) -> Cohort: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`running` sequences are decoded at once; prompts that begin together have at most `prefill_tokens`,
    padded to the longest; an idle server waits `gather_s` for others after the first request."""

    running: int = 1
    prefill_tokens: int = 2048
    gather_s: float = 0.0


@dataclass(eq=False, slots=True)
class _Seat:
    cohort: Cohort
    going: list[Decoding]


class Decoder:
    """The thread that decodes. `deliver` is called in it with the steps of one cohort."""

    def __init__(self, backend: Backend, limits: Limits, deliver: Callable[[list[Step]], None]) -> None:
        self._backend = backend
        self._limits = limits
        self._deliver = deliver
        self._waiting: deque[Decoding] = deque()
        self._seats: list[_Seat] = []
        self._wake = threading.Condition()
        self._stopped = False
        self.broken: str | None = None
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, decodings: Sequence[Decoding]) -> None:
        with self._wake:
            self._waiting.extend(decodings)
            self._wake.notify()

    def cancel(self, decodings: Sequence[Decoding]) -> None:
        """Stop after the step that is running."""
        for decoding in decodings:
            decoding.cancelled = True

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join(timeout=5.0)

    @property
    def running(self) -> int:
        """Sequences that are being decoded, about now."""
        return sum(len(seat.going) for seat in list(self._seats))

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and self.broken is None

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._seats and not self._stopped:
                    self._wake.wait()
                if self._stopped:
                    return
                idle = not self._seats
            if idle and self._limits.gather_s:
                time.sleep(self._limits.gather_s)
            for group in self._admitted():
                self._begin(group)
            for seat in list(self._seats):
                self._step(seat)

    def _admitted(self) -> list[list[Decoding]]:
        """Those that begin now, in the order in which they came, as groups that fit together."""
        with self._wake:
            room = self._limits.running - sum(len(seat.going) for seat in self._seats)
            taken: list[Decoding] = []
            while self._waiting and len(taken) < room:
                decoding = self._waiting.popleft()
                if not decoding.cancelled:
                    taken.append(decoding)
        return grouped(taken, self._limits.prefill_tokens, batches=self._backend.batches)

    def _begin(self, group: list[Decoding]) -> None:
        try:
            self._seats.append(_Seat(self._backend.begin(group), list(group)))
        except Exception as error:  # noqa: BLE001 - a request that fails must not end the server
            self._fail(group, error)

    def _step(self, seat: _Seat) -> None:
        for decoding in [d for d in seat.going if d.cancelled]:
            seat.cohort.drop(decoding)
            seat.going.remove(decoding)
        if seat.going:
            try:
                steps = seat.cohort.step()
                self.broken = None
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(seat.going, error)
                steps, seat.going = [], []
            for step in steps:
                if step.finish and step.decoding in seat.going:
                    seat.going.remove(step.decoding)
            if steps:
                self._deliver(steps)
        if not seat.going:
            self._seats.remove(seat)

    def _fail(self, group: Sequence[Decoding], error: Exception) -> None:
        self.broken = f"{type(error).__name__}: {error}"
        self._deliver([Step(decoding, None, "error", self.broken) for decoding in group])


def grouped(decodings: Sequence[Decoding], prefill_tokens: int, *, batches: bool) -> list[list[Decoding]]:
    """Sequences that may begin together: greedy ones of about equal length. The others begin alone."""
    together = [d for d in decodings if batches and not d.temperature]
    alone = [[d] for d in decodings if not batches or d.temperature]
    found = groups([len(d.prompt) for d in together], prefill_tokens)
    return [[together[i] for i in group] for group in found] + alone

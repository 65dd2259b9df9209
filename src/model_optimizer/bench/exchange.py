"""One request and what came back: first as it is recorded, then as it is judged."""

from dataclasses import dataclass
from typing import Literal

from .request import Prepared

Kind = Literal["connect", "timeout", "http_4xx", "http_5xx", "truncated_stream", "wrong_content"]


class Exchange:
    """The record of one request while it is under way. Times are `perf_counter_ns`.

    `times_ns[i]` is when `pieces[i]` was received. `error` is set when it ended badly on the way; what
    the bytes mean is found out later.
    """

    __slots__ = (
        "detail",
        "error",
        "finished_ns",
        "index",
        "measured",
        "pieces",
        "prepared",
        "scheduled_ns",
        "sent_ns",
        "status",
        "times_ns",
    )

    def __init__(self, prepared: Prepared, *, index: int, measured: bool, scheduled_ns: int) -> None:
        self.prepared = prepared
        self.index = index
        self.measured = measured
        self.scheduled_ns = scheduled_ns
        self.sent_ns: int | None = None
        self.finished_ns: int | None = None
        self.times_ns: list[int] = []
        self.pieces: list[bytes] = []
        self.status: int | None = None
        self.error: Kind | None = None
        self.detail: str | None = None

    @property
    def size(self) -> int:
        """Bytes received."""
        return sum(map(len, self.pieces))

    def fail(self, kind: Kind, detail: str, now_ns: int) -> None:
        """The first failure counts; it ends the exchange."""
        if self.finished_ns is None:
            self.error, self.detail, self.finished_ns = kind, detail, now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one request. Times are `perf_counter_ns`, None where there was no such moment.

    `token_ns` are the arrivals of stream events that carry content, `event_ns` of all events with a
    choice (vLLM counts these). `event_tokens` are token counts of the events in `token_ns`, where the
    server told. `first_bytes` says when anything came back. Token counts are the server's own, None
    where it reported none, or nonsense (`usage_invalid`).
    """

    index: int
    measured: bool
    scheduled_ns: int
    sent_ns: int | None
    finished_ns: int
    error: Kind | None = None
    detail: str | None = None
    token_ns: tuple[int, ...] = ()
    event_ns: tuple[int, ...] = ()
    event_tokens: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    usage_invalid: bool = False
    streamed: bool = False
    wanted_prompt_tokens: int | None = None
    wanted_output_tokens: int | None = None
    label: str | None = None

    @property
    def completed(self) -> bool:
        return self.error is None

    @property
    def last_ns(self) -> int:
        """The last token of a stream, else the last byte."""
        return self.token_ns[-1] if self.token_ns else self.finished_ns

    @property
    def tokens(self) -> int | None:
        """Output tokens: the server's count, else the counted ones, else one for each stream event."""
        if self.output_tokens is not None:
            return self.output_tokens
        if self.event_tokens is not None:
            return sum(self.event_tokens)
        return len(self.token_ns) if self.streamed else None

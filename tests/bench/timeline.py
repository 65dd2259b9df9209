"""Recorded timelines written by hand: times in milliseconds on a clock that nobody has to wait for."""

from collections.abc import Sequence

from model_optimizer.bench.exchange import Kind, Outcome
from model_optimizer.bench.level import Driven, Level

MS = 1_000_000


def outcome(
    sent: float,
    tokens: tuple[float, ...] = (),
    *,
    scheduled: float | None = None,
    finished: float | None = None,
    events: tuple[float, ...] | None = None,
    error: Kind | None = None,
    measured: bool = True,
    prompt_tokens: int | None = 10,
    output_tokens: int | None = None,
    event_tokens: tuple[int, ...] | None = None,
    index: int = 0,
) -> Outcome:
    """A streamed request, sent at `sent`, with a token at each of `tokens`."""
    end = finished if finished is not None else tokens[-1] if tokens else sent
    return Outcome(
        index=index,
        measured=measured,
        scheduled_ns=round((sent if scheduled is None else scheduled) * MS),
        sent_ns=round(sent * MS),
        finished_ns=round(end * MS),
        error=error,
        detail="told to fail" if error else None,
        token_ns=() if error else tuple(round(t * MS) for t in tokens),
        event_ns=() if error else tuple(round(t * MS) for t in (events or tokens)),
        event_tokens=event_tokens,
        prompt_tokens=None if error else prompt_tokens,
        output_tokens=None if error else output_tokens if output_tokens is not None else len(tokens) or None,
        streamed=bool(tokens) and not error,
        wanted_prompt_tokens=10,
    )


def driven(
    outcomes: Sequence[Outcome],
    *,
    opened: float = 0,
    closed: float = 1000,
    arrivals: str = "closed",
    **more: object,
) -> Driven:
    level = Level(title="test", arrivals=arrivals, concurrency=1 if arrivals == "closed" else None)  # pyright: ignore[reportArgumentType]
    return Driven(
        level=level,
        outcomes=tuple(outcomes),
        opened_ns=round(opened * MS),
        closed_ns=round(closed * MS),
        ended_ns=round(closed * MS),
        **more,  # pyright: ignore[reportArgumentType]
    )

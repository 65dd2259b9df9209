"""Answers that are shorter than asked are no answers: a server that gives up early would look fast."""

import dataclasses
from collections.abc import Sequence

from model_optimizer.bench.exchange import Outcome
from model_optimizer.bench.latency import meets
from model_optimizer.bench.level import Driven
from model_optimizer.bench.window import window
from model_optimizer.core import LoadPoint, Slo

SHORT = "short"
"""The kind of error that such an answer is."""


def whole(point: LoadPoint, driven: Driven, slo: Slo) -> LoadPoint:
    """The point with its short answers among the failed requests.

    Every request asks for an exact number of tokens and to go on after an end of text, which all engines that
    are tuned honour.
    """
    span = window(driven)
    began = [o for o in driven.outcomes if span.counts(o)]
    short = [o for o in began if is_short(o)]
    if not short:
        return point
    is_open = driven.level.arrivals != "closed"
    met = sum(meets(o, slo, scheduled=is_open) for o in began if not is_short(o))
    return dataclasses.replace(
        point,
        completed=point.completed - len(short),
        failed=point.failed + len(short),
        errors={**point.errors, SHORT: len(short)},
        error_examples={**point.error_examples, SHORT: _example(short)},
        attainment=met / len(began),
        met=met,
    )


def is_short(outcome: Outcome) -> bool:
    """Completed, and by the server's own count with fewer tokens than asked; without a count only when it
    streamed nothing."""
    if not outcome.completed or not outcome.wanted_output_tokens:
        return False
    got = outcome.output_tokens
    if got is None and outcome.event_tokens is not None:
        got = sum(outcome.event_tokens)
    if got is None:
        return outcome.streamed and not outcome.token_ns
    return got < outcome.wanted_output_tokens


def _example(short: Sequence[Outcome]) -> str:
    least = min(short, key=lambda o: o.tokens or 0)
    return f"{least.tokens or 0} tokens where {least.wanted_output_tokens} were asked for"

"""The times of one request, as defined in the product's design: pure functions of its outcome."""

from model_optimizer.core import Slo

from .exchange import Outcome


def start_ns(outcome: Outcome, *, scheduled: bool) -> int:
    """Where a latency begins; a request that was never sent begins when it was to be."""
    return outcome.scheduled_ns if scheduled or outcome.sent_ns is None else outcome.sent_ns


def ttft_ms(outcome: Outcome, *, scheduled: bool) -> float | None:
    if not outcome.token_ns:
        return None
    return (outcome.token_ns[0] - start_ns(outcome, scheduled=scheduled)) / 1e6


def e2e_ms(outcome: Outcome, *, scheduled: bool) -> float:
    return (outcome.last_ns - start_ns(outcome, scheduled=scheduled)) / 1e6


def tpot_ms(outcome: Outcome) -> float | None:
    tokens = outcome.tokens
    if tokens is None or tokens < 2 or len(outcome.token_ns) < 2:
        return None
    return (outcome.token_ns[-1] - outcome.token_ns[0]) / 1e6 / (tokens - 1)


def gaps_ms(outcome: Outcome) -> list[float]:
    """Gaps between tokens. Tokens that came in one event have no gap between them; where the server did
    not say how many came, an event counts as one token."""
    gaps: list[float] = []
    for i in range(1, len(outcome.token_ns)):
        gaps.append((outcome.token_ns[i] - outcome.token_ns[i - 1]) / 1e6)
        if outcome.event_tokens:
            gaps += [0.0] * (outcome.event_tokens[i] - 1)
    return gaps


def meets(outcome: Outcome, slo: Slo, *, scheduled: bool) -> bool:
    """Whether a completed request met every limit. A limit on what it does not have is not broken by it:
    one token has no TPOT; but without streaming nothing vouches for a TTFT limit."""
    if not outcome.completed:
        return False
    first = ttft_ms(outcome, scheduled=scheduled)
    each = tpot_ms(outcome)
    return (
        (slo.ttft_ms is None or (first is not None and first <= slo.ttft_ms))
        and (slo.tpot_ms is None or each is None or each <= slo.tpot_ms)
        and (slo.e2e_ms is None or e2e_ms(outcome, scheduled=scheduled) <= slo.e2e_ms)
    )

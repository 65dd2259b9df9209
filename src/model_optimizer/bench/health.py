"""Could the client keep up? Otherwise its own limits are counted as the server's."""

from typing import TYPE_CHECKING

from model_optimizer.core import ClientHealth

from .level import Driven
from .percentiles import quantile

if TYPE_CHECKING:
    from .summary import Latencies

BUSY = 0.8  # of one core: within 20 % of what this client can do
SPENT = 0.97  # there was nothing left to do more with
LATE_MS = 5.0
LATE_SHARE = 0.1


def health(
    driven: Driven, headline: "Latencies", requests_per_s: float | None, ceiling: float | None
) -> ClientHealth:
    """Marked when the client was within 20 % of its ceiling, or late by more than 5 ms and more than a
    tenth of the latency that it measured (99th percentiles of lag and slip, and of that latency); invalid
    past the ceiling, or when it began requests later than it measured that they took."""
    lag, slip = quantile(driven.lags_ms, 0.99), quantile(driven.slips_ms, 0.99)
    latency = headline.ttft if headline.ttft.p50 is not None else headline.e2e
    measured = latency.p99 or latency.p50 or 0.0
    allowed = max(LATE_MS, LATE_SHARE * measured)
    reasons: list[str] = []
    invalid = False
    if driven.cpu_share is not None and driven.cpu_share > BUSY:
        reasons.append(f"the client's thread was busy {driven.cpu_share:.0%} of the time")
        invalid = driven.cpu_share > SPENT
    if ceiling is not None:
        ceiling *= driven.processes
        if requests_per_s is not None and requests_per_s > BUSY * ceiling:
            share = requests_per_s / ceiling
            reasons.append(f"the load was {share:.0%} of the client's ceiling of {ceiling:.0f} requests/s")
            invalid = invalid or share > 1
    if lag is not None and lag > allowed:
        reasons.append(f"its event loop was late by {lag:.1f} ms (p99), more than {allowed:.1f} ms")
    if slip is not None and slip > allowed:
        reasons.append(f"requests were begun {slip:.1f} ms late (p99), more than {allowed:.1f} ms")
        invalid = invalid or slip > max(10 * LATE_MS, measured)
    known = driven.cpu_share is not None
    return ClientHealth(
        cpu_share=driven.cpu_share,
        loop_lag_ms_p99=lag,
        schedule_slip_ms_p99=slip,
        ceiling_requests_per_s=ceiling,
        healthy=None if not known else not reasons,
        because="; ".join(reasons) or None,
        verdict=("invalid" if invalid else "marked" if reasons else "valid") if known else None,
        processes=driven.processes,
    )


def worst(clients: tuple[ClientHealth, ...]) -> ClientHealth:
    """The least healthy of the points' clients."""
    order = {"invalid": 0, "marked": 1, None: 2, "valid": 3}
    return min(clients, key=lambda c: (order[c.verdict], -(c.cpu_share or 0.0)), default=ClientHealth())

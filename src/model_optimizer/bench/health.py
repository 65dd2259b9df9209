"""Could the client keep up? Otherwise its own limits are counted as the server's."""

from typing import TYPE_CHECKING

from model_optimizer.core import ClientHealth

from .level import Driven
from .percentiles import quantile

if TYPE_CHECKING:
    from .summary import Latencies

BUSY = 0.8  # of one core: within 20 % of what this client can do
LATE_MS = 5.0
LATE_SHARE = 0.1


def health(
    driven: Driven, headline: "Latencies", requests_per_s: float | None, ceiling: float | None
) -> ClientHealth:
    """Unhealthy when the client was within 20 % of its ceiling, or late by more than 5 ms and more than a
    tenth of the latency that it measured (99th percentiles of lag and slip, and of that latency)."""
    lag, slip = quantile(driven.lags_ms, 0.99), quantile(driven.slips_ms, 0.99)
    latency = headline.ttft if headline.ttft.p50 is not None else headline.e2e
    allowed = max(LATE_MS, LATE_SHARE * (latency.p99 or latency.p50 or 0.0))
    reasons: list[str] = []
    if driven.cpu_share is not None and driven.cpu_share > BUSY:
        reasons.append(f"the client's thread was busy {driven.cpu_share:.0%} of the time")
    if ceiling is not None and requests_per_s is not None and requests_per_s > BUSY * ceiling:
        share = requests_per_s / ceiling
        reasons.append(f"the load was {share:.0%} of the client's ceiling of {ceiling:.0f} requests/s")
    if lag is not None and lag > allowed:
        reasons.append(f"its event loop was late by {lag:.1f} ms (p99), more than {allowed:.1f} ms")
    if slip is not None and slip > allowed:
        reasons.append(f"requests were begun {slip:.1f} ms late (p99), more than {allowed:.1f} ms")
    return ClientHealth(
        cpu_share=driven.cpu_share,
        loop_lag_ms_p99=lag,
        schedule_slip_ms_p99=slip,
        ceiling_requests_per_s=ceiling,
        healthy=None if driven.cpu_share is None else not reasons,
        because="; ".join(reasons) or None,
    )


def worst(clients: tuple[ClientHealth, ...]) -> ClientHealth:
    """The least healthy of the points' clients."""
    order = {False: 0, None: 1, True: 2}
    return min(clients, key=lambda c: (order[c.healthy], -(c.cpu_share or 0.0)), default=ClientHealth())

"""When a level is sure to miss its limits, there is no need to drive it to its end."""

from dataclasses import dataclass

from model_optimizer.core import Slo

from .exchange import Exchange
from .intervals import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Of `planned` requests the SLO's share must meet its limits."""

    slo: Slo
    planned: int

    def misses(self, exchange: Exchange, now_ns: int, *, is_open: bool) -> bool:
        """Whether a request is sure to break a limit, as far as one sees without reading its answer: the
        first bytes may come before the first token, but never after it."""
        start = exchange.scheduled_ns if is_open or exchange.sent_ns is None else exchange.sent_ns
        first = exchange.times_ns[0] if exchange.times_ns else exchange.finished_ns or now_ns
        end = exchange.finished_ns or now_ns
        slo = self.slo
        return (
            exchange.error is not None
            or (slo.ttft_ms is not None and (first - start) / 1e6 > slo.ttft_ms)
            or (slo.e2e_ms is not None and (end - start) / 1e6 > slo.e2e_ms)
        )

    def lost(self, missed: int) -> str | None:
        """Why the level cannot meet its limits any more, even if all other requests do; None if it can."""
        best = max(0, self.planned - missed)
        if wilson(best, self.planned)[1] >= self.slo.percentile / 100:
            return None
        return f"stopped early: {missed} of {self.planned} requests had already missed a limit"

"""Which stretch of a level counts, and why that one."""

from collections.abc import Sequence
from dataclasses import dataclass

from .exchange import Outcome
from .level import Driven


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `begin_ns` to `end_ns`. `whole` is set when warm-up and drain could not be told apart from
    the load; `rule` says in words what was taken."""

    begin_ns: int
    end_ns: int
    whole: bool
    rule: str

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def holds(self, time_ns: int) -> bool:
        return self.begin_ns < time_ns <= self.end_ns


def window(driven: Driven) -> Window:
    """From the first measured request until load was no longer offered.

    When fewer than half of the measured requests had finished by then (a burst, or a run not much longer
    than one request), there was no steady state to look at: the window goes on until the last one did.
    """
    measured = [o for o in driven.outcomes if o.measured]
    begin, end = driven.opened_ns, driven.closed_ns
    inside = sum(begin < o.last_ns <= end for o in measured)
    if end > begin and 2 * inside >= len(measured) and inside:
        rule = f"from the first measured request until load was no longer offered; {_left_out(driven)}"
        return Window(begin_ns=begin, end_ns=end, whole=False, rule=rule)
    first = min((o.scheduled_ns for o in measured), default=begin)
    last = max((o.finished_ns for o in measured), default=first)
    rule = "from the first measured request to the end of the last one (too short to leave out the drain)"
    return Window(begin_ns=first, end_ns=max(last, first), whole=True, rule=rule)


def finished_inside(outcomes: Sequence[Outcome], span: Window) -> list[Outcome]:
    """Requests that ended in the window, whenever they began: what throughput counts."""
    return [o for o in outcomes if span.holds(o.last_ns) and (o.measured or not span.whole)]


def _left_out(driven: Driven) -> str:
    warmup = sum(not o.measured for o in driven.outcomes)
    drain = sum(o.last_ns > driven.closed_ns for o in driven.outcomes if o.measured)
    return f"rates leave out {warmup} of warm-up and the drain of the last {drain}"

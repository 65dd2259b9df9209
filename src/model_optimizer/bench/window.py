"""Which stretch of a level counts, and why that one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .exchange import Outcome
from .latency import e2e_ms
from .level import Driven
from .steady import Steadiness, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `begin_ns` to `end_ns`. `whole` is set when warm-up and drain could not be told apart from
    the load; `rule` says in words what was taken, `steadiness` whether latency stayed the same in it."""

    begin_ns: int
    end_ns: int
    whole: bool
    rule: str
    steadiness: Steadiness = field(default_factory=Steadiness)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def holds(self, time_ns: int) -> bool:
        return self.begin_ns < time_ns <= self.end_ns

    def counts(self, outcome: Outcome) -> bool:
        """Whether a request began within the load that is measured, after what belongs to its start."""
        return outcome.measured and (self.steadiness.skip == 0 or outcome.scheduled_ns >= self.begin_ns)


def window(driven: Driven) -> Window:
    """From the first measured request until load was no longer offered.

    When fewer than half of the measured requests had finished by then (a burst, or a run not much longer
    than one request), there was no steady state to look at: the window goes on until the last one did.
    Where latency plainly still depends on how the load began, the window begins after that.
    """
    measured = [o for o in driven.outcomes if o.measured]
    begin, end = driven.opened_ns, driven.closed_ns
    inside = sum(begin < o.last_ns <= end for o in measured)
    if end > begin and 2 * inside >= len(measured) and inside:
        found = _steadiness(driven, measured)
        first = "first measured request"
        if found.skip:
            begin = sorted(o.scheduled_ns for o in measured)[found.skip]
            first = f"measured request number {found.skip + 1}, where the start of the load no longer shows,"
        rule = f"from the {first} until load was no longer offered; {_left_out(driven)}"
        return Window(begin_ns=begin, end_ns=end, whole=False, rule=rule, steadiness=found)
    first = min((o.scheduled_ns for o in measured), default=begin)
    last = max((o.finished_ns for o in measured), default=first)
    rule = "from the first measured request to the end of the last one (too short to leave out the drain)"
    return Window(begin_ns=first, end_ns=max(last, first), whole=True, rule=rule)


def _steadiness(driven: Driven, measured: Sequence[Outcome]) -> Steadiness:
    """Of requests that began while load was offered; a ramp and a trace are not meant to be steady."""
    if driven.level.ramp is not None or driven.level.arrivals == "trace":
        return Steadiness(because="the load itself changes")
    is_open = driven.level.arrivals != "closed"
    ordered = sorted((o for o in measured if o.completed), key=lambda o: o.scheduled_ns)
    if len(ordered) < len(measured):
        return replace(judge([e2e_ms(o, scheduled=is_open) for o in ordered]), skip=0)
    return judge([e2e_ms(o, scheduled=is_open) for o in ordered])


def share_inside(outcome: Outcome, driven: Driven, span: Window) -> float:
    """The share of a request that rates count.

    In an open loop what ended in the window counts whole, whenever it began: a queue that grows would make
    work under way look like work done. In a closed loop a request counts by the share of its time that lies
    in the window: with equal lengths answers end in waves, and a window that ends before a wave would count
    everything that was computed of it as nothing.
    """
    if span.whole and not outcome.measured:
        return 0.0
    begin, end = outcome.sent_ns or outcome.scheduled_ns, outcome.last_ns
    if span.whole or driven.level.arrivals != "closed" or end <= begin:
        return float(span.holds(end))
    return max(0, min(end, span.end_ns) - max(begin, span.begin_ns)) / (end - begin)


def _left_out(driven: Driven) -> str:
    warmup = sum(not o.measured for o in driven.outcomes)
    drain = sum(o.last_ns > driven.closed_ns for o in driven.outcomes if o.measured)
    return f"rates leave out {warmup} of warm-up and the drain of the last {drain}"

"""From windows to the answer. What counts as a leak is here, in one table."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .nouns import Judgement, Outcome, Soak, SoakWindow, Task, Trend
from .trend import slope

_LEAST = 12  # windows before a slope says anything
_WARM = 0.1  # share of a stretch that is left out at its beginning

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One quantity: growth over the stretch up to `share` of its level, or `least`, is let pass. `leaks`
    tells a leak from a drift of speed."""

    name: str
    unit: str
    read: Callable[[SoakWindow], float | None]
    share: float
    least: float
    leaks: bool = True


QUESTIONS = (
    Question(
        name="GPU memory",
        unit="B",
        read=lambda w: w.look.gpu_memory_bytes,
        share=0.005,
        least=32 * MIB,
    ),
    Question(
        name="server memory (RSS)",
        unit="B",
        read=lambda w: w.look.server_rss_bytes,
        share=0.03,
        least=8 * MIB,
    ),
    Question(name="open files", unit="files", read=lambda w: w.look.open_files, share=0.05, least=8),
    Question(name="KV cache when idle", unit="share", read=lambda w: w.look.kv_usage, share=0, least=0.02),
    Question(
        name="time to first token (p50)",
        unit="ms",
        read=lambda w: w.ttft_p50_ms,
        share=0.2,
        least=2,
        leaks=False,
    ),
    Question(name="request (p50)", unit="ms", read=lambda w: w.e2e_p50_ms, share=0.2, least=2, leaks=False),
)


def judge(task: Task, windows: Sequence[SoakWindow], *, finished: bool) -> Soak:
    """Everything that the windows say, at any time."""
    trends = tuple(trend(question, windows) for question in QUESTIONS)
    errors: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for window in windows:
        errors.update(window.errors)
        examples |= {k: v for k, v in window.examples.items() if k not in examples}
    completed, failed = sum(w.completed for w in windows), sum(w.failed for w in windows)
    outcome, because = _outcome(task, windows, trends, completed, failed)
    return Soak(
        task=task,
        outcome=outcome,
        because=because,
        windows=len(windows),
        hours=(windows[-1].at_s + windows[-1].seconds) / 3600 if windows else 0.0,
        completed=completed,
        failed=failed,
        errors=dict(errors),
        examples=examples,
        restarts=sum(w.restarted for w in windows),
        unreachable_windows=sum(w.unreachable for w in windows),
        trends=trends,
        events=tuple(f"{w.at_s / 3600:.2f} h: {e}" for w in windows for e in w.look.events),
        finished=finished,
    )


def _outcome(
    task: Task, windows: Sequence[SoakWindow], trends: Sequence[Trend], completed: int, failed: int
) -> tuple[Outcome, tuple[str, ...]]:
    if fatal := next((w.look.fatal for w in windows if w.look.fatal), None):
        return "invalid", (fatal,)
    leaking = [t for q, t in zip(QUESTIONS, trends, strict=True) if t.judgement == "rises" and q.leaks]
    slower = [t for q, t in zip(QUESTIONS, trends, strict=True) if t.judgement == "rises" and not q.leaks]
    shaky = _shaky(task, windows, completed, failed)
    because = tuple(f"{t.quantity} {t.because}" for t in (*leaking, *slower)) + shaky
    if leaking:
        return "leaks", because
    if slower:
        return "degrades", because
    if shaky:
        return "unstable", because
    unknown = [t for t in trends if t.judgement == "undecided"]
    if unknown or not completed:
        names = ", ".join(t.quantity for t in unknown) or "nothing completed"
        return "undecided", (f"not settled: {names}",)
    return "sound", ("nothing that was watched grew, and errors stayed within the limit",)


def _shaky(task: Task, windows: Sequence[SoakWindow], completed: int, failed: int) -> tuple[str, ...]:
    found: list[str] = []
    total = completed + failed
    if total and failed / total > task.error_rate:
        found.append(f"{failed} of {total} requests failed ({failed / total:.2%})")
    if restarts := sum(w.restarted for w in windows):
        found.append(f"the server began again {restarts} time{'s' if restarts > 1 else ''}")
    if gone := sum(w.unreachable for w in windows):
        found.append(f"it could not be reached at {gone} of {len(windows)} tries")
    return tuple(found)


def trend(question: Question, windows: Sequence[SoakWindow]) -> Trend:
    """Whether a quantity rises over the longest stretch without a restart."""
    stretch = _stretch(question, windows)
    if not any(question.read(w) is not None for w in windows):
        return _no_trend(question, "not available", "was not available", 0)
    if len(stretch) < _LEAST:
        return _no_trend(
            question, "undecided", f"has {len(stretch)} windows, {_LEAST} are needed", len(stretch)
        )
    times, values = [t for t, _ in stretch], [v for _, v in stretch]
    middle, interval = slope(times, values)
    hours = times[-1] - times[0]
    level = sorted(values)[len(values) // 2]
    tolerance = max(question.share * abs(level), question.least)
    judgement, because = _judgement(question, stretch, interval, hours, tolerance)
    return Trend(
        quantity=question.name,
        unit=question.unit,
        judgement=judgement,
        because=because,
        windows=len(stretch),
        level=level,
        slope_per_h=middle,
        interval=interval,
        grown=middle * hours,
        tolerance=tolerance,
    )


def _judgement(
    question: Question,
    stretch: Sequence[tuple[float, float]],
    interval: tuple[float, float],
    hours: float,
    tolerance: float,
) -> tuple[Judgement, str]:
    """It rises when even the least slope in the interval takes it past the tolerance, and it still rises
    in the second half: a cache that fills up and stays full is no leak."""
    low, high = interval[0] * hours, interval[1] * hours
    grew = f"grew by {show(low, question.unit)} to {show(high, question.unit)} in {show_time(hours)}"
    half = stretch[len(stretch) // 2 :]
    later, (later_low, later_high) = slope([t for t, _ in half], [v for _, v in half])
    if low > tolerance and later_low > 0 and later * hours > tolerance:
        return "rises", grew
    if high <= tolerance:
        return "level", f"grew by {show(max(high, 0.0), question.unit)} at most in {show_time(hours)}"
    if later_high * hours <= tolerance:
        return "level", f"{grew}, and no more in the second half"
    return "undecided", f"{grew}, {show(tolerance, question.unit)} is let pass"


def _stretch(question: Question, windows: Sequence[SoakWindow]) -> list[tuple[float, float]]:
    """Hours and values of the longest part between restarts, without its beginning."""
    parts: list[list[tuple[float, float]]] = [[]]
    for window in windows:
        if window.restarted:
            parts.append([])
        value = question.read(window)
        if value is not None:
            parts[-1].append((window.at_s / 3600, value))
    longest = max(parts, key=len)
    return longest[max(1, round(_WARM * len(longest))) :]


def _no_trend(question: Question, judgement: Judgement, because: str, windows: int) -> Trend:
    return Trend(
        quantity=question.name, unit=question.unit, judgement=judgement, because=because, windows=windows
    )


def show(value: float, unit: str) -> str:
    """A quantity of a trend, for people."""
    from model_optimizer.core.units import show_bytes

    if unit == "B":
        return f"-{show_bytes(round(-value))}" if value < 0 else show_bytes(round(value))
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:.3g} {unit}"


def show_time(hours: float) -> str:
    """`72 h`, `12.5 min` or `40 s`."""
    if hours >= 1:
        return f"{hours:.3g} h"
    return f"{hours * 60:.3g} min" if hours * 60 >= 1 else f"{hours * 3600:.3g} s"

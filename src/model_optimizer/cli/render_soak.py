"""The screens of `mopt soak`: a line for each window, and the answer."""

from model_optimizer.bench.soak import Soak, SoakWindow, Trend
from model_optimizer.bench.soak.verdict import show, show_time
from model_optimizer.cli.render import printable, table
from model_optimizer.core.units import show_ms

_WORDS = {
    "sound": "SOUND",
    "leaks": "LEAKS",
    "degrades": "DEGRADES",
    "unstable": "UNSTABLE",
    "undecided": "UNDECIDED",
    "invalid": "INVALID",
}


def window_text(window: SoakWindow) -> str:
    """One line, for stderr."""
    at = f"{window.at_s / 3600:7.2f} h" if window.at_s >= 3600 else f"{window.at_s:7.0f} s"
    if window.unreachable:
        return printable(f"{at}  no server: {next(iter(window.examples.values()), '')}")
    parts = [f"{window.completed} done", f"{window.failed} failed"]
    parts += [f"TTFT {show_ms(window.ttft_p50_ms)}", f"request {show_ms(window.e2e_p50_ms)}"]
    look = window.look
    if look.server_rss_bytes is not None:
        parts.append(f"RSS {show(look.server_rss_bytes, 'B')}")
    if look.gpu_memory_bytes is not None:
        parts.append(f"GPU {show(look.gpu_memory_bytes, 'B')}")
    if window.restarted:
        parts.append("the server began again")
    parts += look.events
    return printable(f"{at}  {', '.join(parts)}")


def soak_text(found: Soak) -> str:
    """The answer first, then the trends, then what failed."""
    lines = [f"{_WORDS[found.outcome]}: {found.because[0]}" if found.because else _WORDS[found.outcome]]
    lines += [f"  and {reason}" for reason in found.because[1:]]
    if not found.finished:
        lines.append("  it did not run to its end; --resume goes on")
    task = found.task
    lines += ["", f"{task.url}, {task.load}"]
    counts = f"{found.completed} requests completed, {found.failed} failed, {found.restarts} restarts"
    lines.append(f"{show_time(found.hours)} in {found.windows} windows of {task.window_s:g} s, {counts}")
    lines += ["", table([_HEAD, *(_row(t) for t in found.trends)], right=frozenset({1, 2, 3})).rstrip()]
    if found.errors:
        lines += ["", "errors:"]
        lines += [f"  {n} x {kind}, {found.examples.get(kind, '')}" for kind, n in found.errors.items()]
    if found.events:
        lines += ["", "events:", *(f"  {event}" for event in found.events[:20])]
    return "\n".join(printable(line) for line in lines) + "\n"


_HEAD = ["what", "level", "growth per hour", "95 % interval", "verdict"]


def _row(trend: Trend) -> list[str]:
    if trend.slope_per_h is None or trend.interval is None or trend.level is None:
        return [trend.quantity, "-", "-", "-", _verdict(trend)]
    unit = trend.unit
    low, high = trend.interval
    return [
        trend.quantity,
        show(trend.level, unit),
        show(trend.slope_per_h, unit),
        f"{show(low, unit)} to {show(high, unit)}",
        _verdict(trend),
    ]


def _verdict(trend: Trend) -> str:
    return trend.judgement if trend.judgement == "not available" else f"{trend.judgement}: {trend.because}"

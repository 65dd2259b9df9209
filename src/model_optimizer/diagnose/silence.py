"""A program that says nothing: is it working, waiting or gone, and on what."""

import dataclasses
from collections.abc import Sequence

from model_optimizer.core import Host
from model_optimizer.core.diagnosis import Confidence, Diagnosis, Evidence, Recognized, Silence
from model_optimizer.system.process_look import Look

from . import correlate
from .judge import named
from .match import Hit, Matcher
from .signature import Signature

IDLE_PERCENT = 5.0
"""Below this, a process and all it started wait for something. ASSUMED."""

LAST_LINES = 3
_WEIGHT = {"specific": 0, "general": 1, "symptom": 2}


def judge_silence(
    found: Diagnosis,
    last_lines: Sequence[Evidence],
    signatures: Sequence[Signature],
    *,
    limit_s: float,
    silent_s: float | None,
    look: Look | None,
    host: Host | None,
) -> Diagnosis:
    """The diagnosis with what the silence adds. A cause that the log itself shows well stays the cause."""
    state = _state(look)
    silence = Silence(
        last_line=last_lines[-1].text if last_lines else None,
        silent_s=silent_s,
        limit_s=limit_s,
        running_s=look.running_s if look else None,
        alive=look.alive if look else None,
        state=look.state if look else None,
        cpu_percent=look.cpu_percent if look else None,
        gpu_percent=look.gpu_percent if look else None,
        stack=look.stack if look else (),
        verdict=_verdict(silent_s, limit_s, look),
    )
    found = dataclasses.replace(found, silence=silence)
    waiting = silent_s is None or silent_s >= limit_s
    gone = look is not None and not look.alive
    if gone or not waiting or (found.primary and found.primary.confidence != "low"):
        return found
    cause = _cause(last_lines[-LAST_LINES:], silence.stack, signatures, state, host)
    return found if cause is None else dataclasses.replace(found, primary=cause, needed=())


def _cause(
    last_lines: Sequence[Evidence],
    stack: Sequence[str],
    signatures: Sequence[Signature],
    state: str | None,
    host: Host | None,
) -> Recognized | None:
    """What is known to be silent at this line or in this frame."""
    of_stack = _hits("\n".join(stack), signatures, state)
    of_log = _hits("\n".join(e.text for e in last_lines), signatures, state)
    hits = of_stack or of_log
    confidence: Confidence = "high" if of_stack else "medium" if state else "low"
    if not hits:
        return None
    best = min(hits, key=lambda h: (_WEIGHT[h.signature.head.weight], -h.last))
    shown = best.evidence
    if not of_stack:
        shown = [last_lines[e.line - 1] for e in best.evidence]
    why = ("a frame of its stack" if of_stack else "the last lines before the silence",)
    sure: Confidence = best.signature.head.confidence or confidence
    named_one = named(best, correlate.platform(host), why, sure)
    return dataclasses.replace(named_one, evidence=tuple(shown))


def _hits(text: str, signatures: Sequence[Signature], state: str | None) -> list[Hit]:
    silent = [s for s in signatures if s.head.silent]
    if not text or not silent:
        return []
    seen = Matcher(silent)
    seen.feed(text.encode())
    return [h for h in seen.hits if h.count and (state is None or h.signature.head.process in (None, state))]


def _state(look: Look | None) -> str | None:
    """busy, idle, or None when it could not be seen."""
    if look is None or look.cpu_percent is None:
        return None
    return "busy" if max(look.cpu_percent, look.gpu_percent or 0.0) >= IDLE_PERCENT else "idle"


def _verdict(silent_s: float | None, limit_s: float, look: Look | None) -> str:
    if look is not None and not look.alive:
        return "the process has ended; its silence is its end"
    if silent_s is not None and silent_s < limit_s:
        return f"not silent yet: the last line is {silent_s:.0f} s old, the limit is {limit_s:.0f} s"
    if look is None or look.cpu_percent is None:
        return "silent; name the process with --pid to see whether it works or waits"
    if look.state == "stopped":
        return "the process is stopped (SIGSTOP or a debugger)"
    if look.state == "disk-sleep":
        return "the process waits for a disk or for a driver"
    if _state(look) == "busy":
        return "the process is silent but works"
    return "the process is silent and waits"

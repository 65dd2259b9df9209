"""The screens of `mopt diagnose`."""

import textwrap
from collections.abc import Sequence

from model_optimizer.core import codec
from model_optimizer.core.diagnosis import Diagnosis, Evidence, Recognized, Silence

from .render import printable

WIDTH = 100
MOST = 6
"""Lines of one kind that are shown; the JSON has all."""


def diagnosis_json(found: Diagnosis) -> str:
    return codec.dumps(found)


def diagnosis_text(found: Diagnosis) -> str:
    lines = [*_primary(found), *_command(found), *_silence(found.silence)]
    lines += _listed("Also possible" if found.primary else "Seen", found.others, causes=True)
    lines += _listed("Contributing", found.contributing, causes=True)
    lines += _listed("Follows from it", found.consequences)
    lines += _listed("Says only that something failed", found.wrappers)
    lines += _listed("Harmless", found.benign)
    if found.unexplained and (found.primary is None or found.primary.confidence != "high"):
        lines += ["", "Errors that are not known here:", *_evidence(found.unexplained)]
    if found.needed:
        lines += ["", "To be surer, send:" if found.primary else "What to send:"]
        lines += [line for text in found.needed for line in _wrapped(text, "- ")]
    lines += ["", f"{found.lines:,} lines read", *found.notes]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _primary(found: Diagnosis) -> list[str]:
    cause = found.primary
    if cause is None:
        if found.command is not None and found.command.exit_code == 0:
            return ["The command succeeded."]
        return ["No cause can be named from this log."]
    lines = [f"{cause.id} ({cause.layer}), confidence {cause.confidence}", *_wrapped(cause.cause, "  ")]
    lines += ["", "Shown by:", *_evidence(cause.evidence)]
    if cause.count > len(cause.evidence):
        lines.append(f"  in {cause.count:,} lines altogether")
    lines += [line for text in cause.because for line in _wrapped(text, "  because ")]
    lines += ["", "What to do:", *(line for step in cause.fix for line in _wrapped(step, "- "))]
    if cause.probe:
        lines += ["", "What confirms it:", f"  {cause.probe}"]
    return lines


def _command(found: Diagnosis) -> list[str]:
    command = found.command
    if command is None:
        return []
    code = command.exit_code
    how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
    return ["", f"The command {how} after {command.seconds:.1f} s."]


def _silence(silence: Silence | None) -> list[str]:
    if silence is None:
        return []
    lines = ["", f"Silence: {silence.verdict}."]
    facts = {
        "last line": _seconds(silence.silent_s, "ago"),
        "running": _seconds(silence.running_s, ""),
        "state": silence.state,
        "processor": None if silence.cpu_percent is None else f"{silence.cpu_percent:.0f} % of one core",
        "GPU": None if silence.gpu_percent is None else f"{silence.gpu_percent:.0f} %",
    }
    lines += [f"  {name}: {value}" for name, value in facts.items() if value]
    return lines + [f"  {frame}" for frame in silence.stack[:MOST]]


def _seconds(value: float | None, word: str) -> str | None:
    return None if value is None else f"{value:.0f} s {word}".rstrip()


def _listed(title: str, found: Sequence[Recognized], *, causes: bool = False) -> list[str]:
    if not found:
        return []
    lines = ["", f"{title}:"]
    for one in found[:MOST]:
        where = f"line {one.evidence[0].line}" if one.evidence else ""
        lines.append(f"  {one.id}, {where}" + (f" and {one.count - 1:,} more" if one.count > 1 else ""))
        if causes:
            lines += _wrapped(one.cause, "    ")
            lines += [line for text in one.because for line in _wrapped(text, "    but: ")]
            if one.kind in ("root", "client"):
                lines += [line for step in one.fix[:2] for line in _wrapped(step, "    - ")]
    return lines + ([f"  and {len(found) - MOST} more"] if len(found) > MOST else [])


def _evidence(found: Sequence[Evidence]) -> list[str]:
    return [f"  {e.line or 'stack':>7}  {e.text}" for e in found]


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )

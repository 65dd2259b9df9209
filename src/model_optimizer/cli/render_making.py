"""What will be made, and what was, as text."""

from pathlib import Path

from model_optimizer.core import Artifact
from model_optimizer.core.paths import Work
from model_optimizer.core.units import show_bytes

from .render import printable


def work_text(work: Work, out: Path) -> str:
    """The steps in order, then what they take."""
    lines: list[str] = []
    form, scheme = work.source.format, work.source.scheme
    for place, hop in enumerate(work.chain, start=1):
        lines.append(f"{place}. {hop.tool}: {form} ({scheme}) -> {hop.format} ({hop.scheme})")
        form, scheme = hop.format, hop.scheme
    needs = work.needs
    lines.append(
        f"needs about {show_bytes(needs.memory_bytes)} of memory and {show_bytes(needs.disk_bytes)} of disk; "
        f"makes about {show_bytes(needs.artifact_bytes)} in {out}"
    )
    if work.vram_bytes is not None:
        lines.append(f"holds about {show_bytes(work.vram_bytes)} of the GPU's memory")
    if work.seconds is not None:
        lines.append(f"takes {_span(*work.seconds)} here")
    lines += [f"- {note}" for note in work.notes]
    return "".join(f"{printable(line)}\n" for line in lines)


def _span(low: float, high: float) -> str:
    """`8 to 50 s`, `3 to 20 min`, `2 to 12 h`: by the unit of the longer end."""
    for unit, seconds in (("h", 3600), ("min", 60), ("s", 1)):
        if high >= 2 * seconds:
            return f"{max(1, round(low / seconds))} to {round(high / seconds)} {unit}"
    return "a second or two"


def artifact_text(artifact: Artifact, source: Artifact) -> str:
    """Where it is, how large beside its source, and what its makers noted."""
    ratio = f", {artifact.bytes / source.bytes:.0%} of the checkpoint" if source.bytes else ""
    lines = [
        f"{artifact.path}",
        f"  {artifact.scheme} in {artifact.format}, {show_bytes(artifact.bytes)}{ratio}",
        f"  {artifact.digest}",
    ]
    if artifact.made_by:
        lines.append(f"  made by {artifact.made_by.tool} ({artifact.made_by.version})")
    lines += [f"  - {note}" for note in artifact.notes]
    return "".join(f"{printable(line)}\n" for line in lines)

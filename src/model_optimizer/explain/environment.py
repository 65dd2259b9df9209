"""Environment variables that are set for a command: which of them the release still reads."""

from collections.abc import Sequence

from model_optimizer.core.explanation import Point
from model_optimizer.facts import flags
from model_optimizer.facts.flags import Table

from . import names

PREFIXES = {"vllm": "VLLM_", "sglang": "SGLANG_"}


def translate(
    given: Sequence[tuple[str, str]], engine: str, today: Table
) -> tuple[list[str], list[str], list[Point]]:
    """What is still set, the options in the place of what is gone, and a remark about each of those."""
    kept: list[str] = []
    added: list[str] = []
    points: list[Point] = []
    for name, value in given:
        last = flags.every_name(engine, "variables").get(name)
        if not name.startswith(PREFIXES[engine]) or name in today.variables:
            kept.append(f"{name}={value}")
            continue
        meaning = flags.meanings(engine).get(name)
        words = [w.replace("{value}", value) for w in (meaning.to or ())] if meaning else []
        title = f"{names.TITLES[engine]} {today.version}"
        when = f"its last release was {last}" if last else "no release that was read has it"
        instead = f"write {' '.join(words)}" if words else "left out"
        reason = (meaning.because or "".join(meaning.watch[:1])) if meaning else ""
        because = f": {reason}" if reason else ""
        level = "changed" if last else "wrong"
        says = f"{title} does not read it ({when}); {instead}{because}"
        points.append(
            Point(about=name, level=level, says=says, source=f"facts/flags/{engine}/{today.version}")
        )
        added += words
    return kept, added, points

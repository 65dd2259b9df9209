"""The screens of `mopt explain`."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_optimizer.core import codec
from model_optimizer.core.explanation import Change, Changes, Explanation, Point, Stretch

from .render import printable

if TYPE_CHECKING:
    from model_optimizer.explain.learn import Learned

WIDTH = 100
MOST = 14
ORDER = ("wrong", "changed", "warn", "fine", "note")
MARKS = {"wrong": "wrong  ", "changed": "changed", "warn": "careful", "fine": "fine   ", "note": "note   "}
VERDICTS = {
    "true": "True.",
    "false": "False.",
    "outdated": "Outdated: it was so once.",
    "depends": "It depends.",
    "unverifiable": "Not known: no source was found.",
}


def explanation_json(found: Explanation) -> str:
    return codec.dumps(found)


def explanation_text(found: Explanation) -> str:
    lines = _wrapped(found.title, "")
    if found.verdict:
        lines += ["", VERDICTS[found.verdict]]
    lines += [line for text in found.means for line in _wrapped(text, "  ")]
    lines += _history(found.history)
    if found.choices:
        lines += _wrapped(f"takes {', '.join(found.choices)}", "  ")
    lines += _points(found.points)
    if found.today:
        lines += ["", f"Today, for {found.today_for}:" if found.today_for else "Today:"]
        lines += [f"  {line}" for line in found.today]
    if found.do:
        lines += ["", *(line for step in found.do for line in _wrapped(step, "- "))]
    if found.near:
        lines += ["", *(line for text in found.near for line in _wrapped(text, "see also: "))]
    if found.source:
        lines += ["", *_wrapped(f"from {'; '.join(found.source[:4])}", "")]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _history(history: Sequence[Stretch]) -> list[str]:
    if not history:
        return []
    lines: list[str] = []
    for stretch in history:
        until = stretch.until or "now"
        when = f"{stretch.since} to {until}" if until != stretch.since else stretch.since
        default = {"none": "not set", None: "not read"}.get(stretch.default, stretch.default)
        lines.append(f"  {when:<22} default {default}{', deprecated' if stretch.deprecated else ''}".rstrip())
    if any(stretch.default is not None for stretch in history):
        return ["", *lines]
    return [
        "",
        *(line.replace("default not read, ", "").replace("default not read", "").rstrip() for line in lines),
    ]


def _points(points: Sequence[Point]) -> list[str]:
    ordered = sorted(dict.fromkeys(points), key=lambda p: ORDER.index(p.level))
    lines: list[str] = []
    for point in ordered[:MOST]:
        lines += _wrapped(f"{point.about}: {point.says}", f"{MARKS[point.level]}  ")
    if len(ordered) > MOST:
        lines.append(f"and {len(ordered) - MOST} more (--json has all)")
    return ["", *lines] if lines else []


def learned_text(found: "Learned") -> str:
    table = found.table
    lines = [
        f"{table.engine} {table.version}: {len(table.options)} options, {len(table.variables)} environment "
        f"variables, {len(table.metrics)} metrics, {found.architectures} architectures",
        f"kept in {found.path}",
    ]
    if found.compared is None:
        lines.append("no table ships for this release: `mopt explain` takes what was read here")
    elif not found.differs:
        lines.append("the same as the table that ships")
    else:
        lines += ["", f"Not as in the table that ships ({len(found.differs)}):"]
        lines += [f"  {line}" for line in found.differs[:40]]
        lines += [f"  and {len(found.differs) - 40} more"] if len(found.differs) > 40 else []
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def changes_json(found: Changes) -> str:
    return codec.dumps(found)


def changes_text(found: Changes) -> str:
    lines = [f"{found.engine} {found.before} -> {found.after}"]
    slow = [c for c in (*found.defaults, *found.removed, *found.deprecated) if c.speed]
    if slow:
        lines += ["", "What can make it slower or faster:"]
        lines += [line for c in slow for line in _wrapped(f"{_with_values(c)}: {c.speed}", "- ")]
    lines += _listed("Defaults that changed", found.defaults, arrow=True)
    gone = [c for c in found.removed if c.section == "options" or c.use_instead]
    lines += _listed("Gone", gone, instead=True)
    lines += _counted("Gone", [c for c in found.removed if c not in gone], 12)
    lines += _listed("Deprecated", found.deprecated, instead=True)
    lines += _listed("Values that came or went", found.choices, choices=True)
    lines += _counted("New", found.added, 12)
    if found.news:
        lines += ["", "What else the releases changed:"]
        lines += [line for text in found.news for line in _wrapped(text, "- ")]
    lines += ["", *_wrapped(f"from {'; '.join(found.source)}", "")]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _listed(
    title: str, found: Sequence[Change], *, arrow: bool = False, instead: bool = False, choices: bool = False
) -> list[str]:
    if not found:
        return []
    lines = ["", f"{title} ({len(found)}):"]
    for one in found[:40]:
        text = one.name
        if arrow:
            text += f": {_shown(one.before)} -> {_shown(one.after)}"
        if choices:
            text += "".join(f", {w} {v}" for w, v in (("without", one.before), ("with", one.after)) if v)
        if instead and one.use_instead:
            text += f": use {one.use_instead}" if one.use_instead.startswith("-") else f": {one.use_instead}"
        lines += _wrapped(text, "  ")
    return lines + ([f"  and {len(found) - 40} more (--json has all)"] if len(found) > 40 else [])


def _with_values(change: Change) -> str:
    if change.after is None:
        return f"{change.name} ({'gone' if change.before is not None else 'deprecated'})"
    return f"{change.name}, {_shown(change.before)} -> {_shown(change.after)}"


def _shown(value: str | None) -> str:
    return {None: "not read", "none": "not set", "": "empty"}.get(value, value or "")


def _counted(title: str, found: Sequence[Change], most: int) -> list[str]:
    """Names by kind, the first of each."""
    lines: list[str] = []
    for section in ("options", "variables", "metrics"):
        names = [c.name for c in found if c.section == section]
        if names:
            more = f" and {len(names) - most} more" if len(names) > most else ""
            lines += [
                "",
                *_wrapped(f"{title} {section} ({len(names)}): {', '.join(names[:most])}{more}", ""),
            ]
    return lines


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )

"""The screens of `mopt plan`: the answer, what was derived, what was rejected, the command to run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from model_optimizer.cli.render import printable
from model_optimizer.core import Cost, Estimate, Plan, Rejection, Spread
from model_optimizer.core.units import show_bytes, show_count, show_ms

if TYPE_CHECKING:
    from model_optimizer.flow.recheck import Recheck

WIDTH = 100
MOST_ROWS = 12
FEW = 2


def plan_text(plan: Plan, *, explain: bool = False) -> str:
    """Everything a person needs; `--json` has the same, `--explain` adds the page of reasons."""
    lines = [_answer(plan), *(f"  {line}" for line in _expected(plan.estimate)), ""]
    lines += ["Settings:", *_settings(plan), ""]
    if explain:
        lines += notebook(plan)
    lines += [*_run(plan), ""]
    if plan.crossover:
        lines += ["Where another combination would win:"]
        lines += [
            f"  above {row.above:g} {row.unit}: {row.engine} {row.scheme}{_of(row.parallel)}, {row.because}"
            for row in plan.crossover
        ]
        lines.append("")
    if plan.cost:
        lines += ["Cost:", *_cost(plan), ""]
    lines += ["Rejected:", *_rejected(plan.rejected, every=explain)] if plan.rejected else []
    lines += ["", *(f"note: {note}" for note in plan.notes)] if plan.notes else []
    return _text(lines)


def infeasible_text(plan: Plan, *, explain: bool = False) -> str:
    """What binds, by how much, and what would do."""
    short = ""
    if plan.short_by is not None:
        amount = (
            show_bytes(round(plan.short_by))
            if "bytes" in (plan.short_by_unit or "")
            else show_count(plan.short_by)
        )
        unit = (plan.short_by_unit or "").replace("bytes ", "")
        unit = "GPU" if (plan.short_by, unit) == (1, "GPUs") else unit
        short = f", short by {amount} {unit}".rstrip()
    lines = [
        f"NO FEASIBLE PLAN for {plan.model} on {plan.gpus} x {plan.gpu}",
        f"  {_binding(plan.binding)}{short}",
    ]
    lines += [f"  {note}" for note in plan.notes[:1]]
    broken = [link for link in plan.links if link.holds is False]
    lines += [f"  the chain breaks at {link.name}: {link.says}" for link in broken[:1]]
    lines.append("")
    if plan.nearest:
        lines.append("Nearest plans:")
        width = max(len(near.axis) for near in plan.nearest)
        lines += [f"  {near.axis.ljust(width)}  {near.change}" for near in plan.nearest]
    else:
        lines.append("No plan near it is feasible either.")
    lines += ["", "Rejected:", *_rejected(plan.rejected, every=explain)]
    lines += ["", *(f"note: {note}" for note in plan.notes[1:])] if plan.notes[1:] else []
    return _text(lines)


def _binding(name: str | None) -> str:
    return "the number of GPUs binds" if name == "gpus" else f"{name} binds"


MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "unknown": "?   ", "skipped": "-   "}


def recheck_text(found: "Recheck") -> str:
    """A line a question, and whether the plan holds."""
    version = f" {found.engine_version}" if found.engine_version else ""
    width = max(len(one.check) for one in found.findings)
    lines = [f"{found.model} with {found.engine}{version}: {'holds' if found.holds else 'DOES NOT HOLD'}"]
    for one in found.findings:
        lines += _wrapped(f"  {MARKS[one.status]}  {one.check.ljust(width)}  ", one.message)
        lines += _wrapped(f"        {' ' * width}  do: ", one.hint) if one.hint else []
    return _text(lines)


def notebook(plan: Plan) -> list[str]:
    """Constraint, formula, numbers, conclusion, one decision after the other."""
    lines = ["Which engine:", *(f"  {step}" for step in plan.branch), ""]
    for index, page in enumerate(plan.derivations, 1):
        lines.append(f"{index}. {page.title}")
        for name, text in (
            ("constraint", page.constraint),
            ("formula", page.formula),
            ("numbers", page.numbers),
            ("therefore", page.conclusion),
            ("source", page.source),
        ):
            if text:
                lines += _wrapped(f"   {name:<10}  ", text)
        lines.append("")
    terms = plan.estimate.memory
    if terms:
        lines.append("Memory of a GPU, term by term:")
        width = max(len(term.name) for term in terms)
        lines += [
            f"   {t.name.ljust(width)}  {show_bytes(t.bytes):>9}  {t.because} [{t.source}]" for t in terms
        ]
        lines.append("")
    return lines


def shell_text(
    command: Sequence[str] | str,
    prepare: Sequence[Sequence[str]] = (),
    env: Mapping[str, str] | None = None,
    *,
    remark: str | None = None,
) -> str:
    """A command to paste, its environment before it. What must be done first stands above it as comments."""
    if isinstance(command, str):
        return command
    lines = [f"# first: {shell_line(words)}" for words in prepare]
    lines += [f"# {remark}"] if remark else []
    variables = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    return "\n".join([*lines, " ".join([*variables, shell_line(command)])]) + "\n"


def shell_line(words: Sequence[str]) -> str:
    """Quoted for a shell; a path in the home folder stays one."""
    return " ".join(
        f'"$HOME{word[1:]}"' if re.fullmatch(r"~/[\w./:@-]*", word) else shlex.quote(word) for word in words
    )


def _answer(plan: Plan) -> str:
    parallel = [f"TP{plan.tensor_parallel}"] if plan.tensor_parallel > 1 else []
    parallel += [f"PP{plan.pipeline_parallel}"] if plan.pipeline_parallel > 1 else []
    parallel += [f"DP{plan.data_parallel}"] if plan.data_parallel > 1 else []
    parallel += ["EP"] if plan.expert_parallel > 1 else []
    version = f" {plan.engine_version}" if plan.engine_version else ""
    where = f"{plan.gpus} x {plan.gpu}" if plan.gpu else "the CPU of this machine"
    replicas = f", {plan.replicas} replicas" if plan.replicas > 1 else ""
    return (
        f"{plan.model} on {where}: {plan.engine}{version}, {plan.scheme}{_of(' '.join(parallel))}{replicas}"
    )


def _of(parallel: str) -> str:
    return f" {parallel}" if parallel and parallel != "1" else ""


def _expected(found: Estimate) -> list[str]:
    times = [
        f"{name} {show_ms(spread.mean)} mean, {show_ms(spread.p99)} P99"
        for name, spread in (("TTFT", found.ttft_ms), ("TPOT", found.tpot_ms), ("E2E", found.e2e_ms))
        if _known(spread)
    ]
    rates = [
        f"{show_count(value)} {unit}"
        for value, unit in (
            (found.requests_per_s, "requests/s"),
            (found.output_tokens_per_s, "output tokens/s"),
            (found.input_tokens_per_s, "input tokens/s"),
        )
        if value is not None
    ]
    lines = ["expected: " + "; ".join(times)] if times else []
    lines += ["          " + ", ".join(rates)] if rates else []
    return [*lines, f"by: {found.provenance}"]


def _known(spread: Spread) -> bool:
    return spread.mean is not None or spread.p99 is not None


def _settings(plan: Plan) -> list[str]:
    width = max((len(s.name) for s in plan.settings), default=0)
    values = max((min(len(s.value), 16) for s in plan.settings), default=0)
    lines: list[str] = []
    for setting in plan.settings:
        head = f"  {setting.name.ljust(width)}  {setting.value.ljust(values)}  "
        if len(setting.value) > values:
            lines.append(head.rstrip())
            head = " " * (width + values + 6)
        lines += _wrapped(head, f"{setting.because} [{setting.source}]")
    return lines


def _run(plan: Plan) -> list[str]:
    lines = [f"First:    {shell_line(words)}" for words in plan.prepare]
    if plan.command:
        words = [shell_line((word,)) for word in plan.command]
        lines += _wrapped("Command:  ", words, hang=4, joint=" \\")
    if fleet := fleet_text(plan):
        lines += _wrapped("Replicas: ", fleet)
    image = f"Image:    {plan.image}" if plan.image else None
    lines += [image] if image else []
    lines += [f"Env:      {name}={value}" for name, value in plan.env.items()]
    unsure = [link.says for link in plan.links if link.holds is None]
    return [*lines, *(f"Check:    {text}" for text in unsure)]


def fleet_text(plan: Plan) -> str | None:
    """What a plan of several replicas takes beside its command, which starts one of them."""
    if plan.replicas < 2 or not plan.gpus:
        return None
    each = plan.gpus // plan.replicas
    own = f"{each} GPUs of its own" if each > 1 else "a GPU of its own"
    shown = ",".join(map(str, range(each, 2 * each)))
    return (
        f"the command starts one of {plan.replicas}; each takes {own} (for the second of a host "
        f"CUDA_VISIBLE_DEVICES={shown}) and its own port, and a load balancer stands before them"
    )


def _cost(plan: Plan) -> list[str]:
    cost = plan.cost
    assert cost is not None
    rows = [f"  {cost.per_hour:.3g} {cost.currency} an hour"]
    for name, value in (
        ("a million output tokens", cost.per_million_output_tokens),
        ("a million tokens, prompts and answers", cost.per_million_tokens),
    ):
        if value is not None:
            rows.append(f"  {value:.3g} {cost.currency} {name}")
    if cost.hosted_per_hour is not None:
        rows.append(
            f"  the hosted API would ask {cost.hosted_per_hour:.3g} {cost.currency} an hour for this load"
        )
    if cost.break_even_tokens_per_day is not None:
        rows.append(_break_even(cost))
    return [*rows, f"  ({cost.because}; {cost.source})"]


def _break_even(cost: Cost) -> str:
    """From how many tokens a day on it pays, beside how many this load has."""
    even, million = cost.break_even_tokens_per_day, cost.per_million_tokens
    assert even is not None
    row = f"  from {show_count(even / 1e6)} M tokens a day on, this is cheaper"
    if not million:
        return row
    load = 24 * cost.per_hour / million
    return f"{row}; this load is {show_count(load)} M a day" + ("" if load >= even / 1e6 else ": it is not")


def _rejected(rows: Sequence[Rejection], *, every: bool) -> list[str]:
    """Rows with one engine and reason together; the first ones unless `every`."""
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        together.setdefault((row.engine, row.reason), []).append(f"{row.scheme}{_of(row.parallel)}")
    lines: list[str] = []
    for (engine, reason), what in together.items():
        lines += _wrapped(f"  {engine} ", f"{_few(what)}: {reason}", hang=4)
    if every or len(lines) <= MOST_ROWS:
        return lines
    return [*lines[:MOST_ROWS], f"  ... {len(lines) - MOST_ROWS} more lines with --explain or --json"]


def _few(what: Sequence[str]) -> str:
    names = list(dict.fromkeys(what))
    if names == ["any"]:
        return "in any format"
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _wrapped(head: str, text: str | Sequence[str], *, hang: int | None = None, joint: str = "") -> list[str]:
    """Words in lines of at most WIDTH, those after the first indented by `hang` or below the text."""
    indent = " " * (len(head) if hang is None else hang)
    lines, line = list[str](), head
    for word in text.split(" ") if isinstance(text, str) else text:
        if len(line) + len(word) + len(joint) > WIDTH and line.strip() not in ("", head.strip()):
            lines.append(line.rstrip() + joint)
            line = indent
        line += word + " "
    return [*lines, line.rstrip()]


def _text(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(printable(line).rstrip())
    return "\n".join(kept).rstrip() + "\n"

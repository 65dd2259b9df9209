"""Reads an engine that is installed: its options, defaults, variables and metrics; compares with ours."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import Progress, ToolError, UsageError
from model_optimizer.facts import flags
from model_optimizer.facts.flags import Table
from model_optimizer.system import environments, learned
from model_optimizer.system.environments import worker

ENVIRONMENTS = {"vllm": "vllm_cpu"}
"""The engines that can be read, and the environment that each is in unless another Python is named."""
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was read and where it is kept.

    `differs` are names whose rows are not those of the table that ships for the same release; `compared` is
    that release, None when no table ships for it.
    """

    table: Table
    path: Path
    architectures: int
    compared: str | None = None
    differs: tuple[str, ...] = ()


def learn(engine: str, *, python: Path | None = None, progress: Progress) -> Learned:
    """Read an installed engine and keep what it says in the user's data folder.

    UsageError for engines that cannot be read, HostError when the environment is missing, ToolError when the
    engine does not answer.
    """
    name = engine.strip().lower().replace("-", "_")
    name = "vllm" if name == "vllm_cpu" else name
    if name not in ENVIRONMENTS:
        raise UsageError(f"`{engine}` cannot be read", hint=(f"what can be: {', '.join(ENVIRONMENTS)}",))
    if python is not None and not python.is_file():
        raise UsageError(
            f"there is no interpreter `{python}`", hint=("name the `bin/python` of an environment",)
        )
    job = f"learn_{name}"
    if python is None:
        answer = environments.run_worker(ENVIRONMENTS[name], job, {}, progress, timeout_s=TIMEOUT_S)
    else:
        given = worker.variables(ENVIRONMENTS[name], python)
        answer = worker.run_job(python, job, {}, progress, env=given, timeout_s=TIMEOUT_S)
    architectures = answer.get("architectures", [])
    source = [f"{name} {answer.get('version')} as installed"]
    try:
        table = msgspec.convert({**answer, "source": source, "learned": True}, type=Table)
    except msgspec.ValidationError as error:
        raise ToolError(f"what {name} said of itself cannot be read", cause=(str(error),)) from error
    path = learned.write(table)
    compared = table.version if table.version in flags.versions(name) else None
    return Learned(
        table=table,
        path=path,
        architectures=len(architectures),
        compared=compared,
        differs=differences(table, flags.table(name, compared)) if compared else (),
    )


def differences(found: Table, shipped: Table) -> tuple[str, ...]:
    """One line for each name that only one side has, or whose kind or default differ."""
    lines: list[str] = []
    for section in flags.SECTIONS:
        ours, theirs = shipped.section(section), found.section(section)
        lines += [f"{name}: only in the installed one" for name in sorted(theirs.keys() - ours.keys())]
        lines += [f"{name}: only in the table" for name in sorted(ours.keys() - theirs.keys())]
        for name in sorted(ours.keys() & theirs.keys()):
            was, now = ours[name], theirs[name]
            if section == "options" and was.takes != now.takes:
                lines.append(f"{name}: takes {now.takes}, the table says {was.takes}")
            by_machine = was.default is None or was.default.startswith("$")
            if not by_machine and now.default is not None and was.default != now.default:
                lines.append(f"{name}: default {now.default}, the table says {was.default}")
    return tuple(lines)

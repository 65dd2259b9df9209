"""Environments as text."""

import shlex
from collections.abc import Sequence

from model_optimizer.core.units import show_bytes
from model_optimizer.system.environments import Bundle, Environment

from .render import printable, table


def environments_text(environments: Sequence[Environment]) -> str:
    rows = [["environment", "state", "python", "disk", "download", "what it is for"]]
    for env in environments:
        disk = env.needs.disk_bytes if env.disk_bytes is None else env.disk_bytes
        rows.append(
            [
                name(env),
                env.condition,
                env.python or "-",
                show_bytes(disk),
                "-" if env.condition == "ready" else show_bytes(env.needs.download_bytes),
                env.title,
            ]
        )
    text = table(rows, right=frozenset({3, 4}))
    if any(env.condition != "ready" for env in environments):
        text += "\nmake one with: mopt env create NAME\n"
    return text


def environment_text(env: Environment) -> str:
    """One environment: its state first, then why, then where."""
    lines = [f"{name(env)}: {env.condition}"]
    lines += [f"  {printable(why)}" for why in env.because]
    if env.condition == "missing":
        lines.append(
            f"  making it downloads {show_bytes(env.needs.download_bytes)} and writes "
            f"{show_bytes(env.needs.disk_bytes)}: mopt env create {name(env)}"
        )
    elif env.condition != "ready":
        lines.append(f"  make it again: mopt env create {name(env)} --again")
    if env.python:
        lines.append(f"  Python {env.python}, {show_bytes(env.disk_bytes)}, made {env.made_at}")
        lines.append(f"  {printable(env.path)}")
    return "\n".join(lines) + "\n"


def bundle_text(bundle: Bundle, out: str) -> str:
    largest = max((part.bytes for part in bundle.parts), default=0)
    needs = f", glibc {bundle.glibc} or newer" if bundle.glibc else ""
    shown = bundle.name.replace("_", "-")
    return (
        f"{shown}: {len(bundle.wheels)} packages, {show_bytes(bundle.bytes)} in {len(bundle.parts)} parts "
        f"of at most {show_bytes(largest)}\n"
        f"  for {bundle.platform}, Python {bundle.python}{needs}\n"
        f"  there: mopt env create {shown} --from {shlex.quote(printable(out))}\n"
    )


def commands_text(commands: Sequence[Sequence[str]]) -> str:
    return "".join(f"{printable(shlex.join(command))}\n" for command in commands)


def name(env: Environment) -> str:
    return env.name.replace("_", "-")

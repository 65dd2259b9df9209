"""Servers as text."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Launch, Plan
from model_optimizer.core.units import show_bytes
from model_optimizer.serve import Served

from .render import printable, table

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A detached server as it is now."""

    served: Served
    healthy: bool
    memory_bytes: int | None


def ready_text(served: Served, task: str, memory_bytes: int | None, *, keyed: bool, detached: bool) -> str:
    """Where the server is and how to ask it."""
    held = "memory unknown" if memory_bytes is None else f"{show_bytes(memory_bytes)} of memory"
    lines = [
        f"{printable(served.served_name)} is served at {served.url}",
        f"  {served.engine}, {served.scheme}, {held}, pid {served.pid}",
        f"  log: {printable(served.log)}",
        "",
        curl(served, task, keyed=keyed),
        "",
        f"stop it with: mopt serve --stop {served.pid}" if detached else "Ctrl-C stops it.",
    ]
    return "\n".join(lines) + "\n"


def curl(served: Served, task: str, *, keyed: bool) -> str:
    """A command that a shell can run as it stands."""
    path, body = "completions", {"model": served.served_name, "prompt": "Once upon a time", "max_tokens": 32}
    if task == "embed":
        path, body = "embeddings", {"model": served.served_name, "input": "a sentence"}
    if task == "rerank":
        path, body = "rerank", {"model": served.served_name, "query": "why?", "documents": ["because"]}
    if task == "vision":
        return f"curl {served.url}/v2/models/{served.served_name}"
    key = ' -H "Authorization: Bearer $MOPT_API_KEY"' if keyed else ""
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {served.url}/v1/{path} -H 'Content-Type: application/json'{key} -d {data}"


def status_text(rows: Sequence[Row]) -> str:
    if not rows:
        return "no server of `mopt serve --detach` is running\n"
    cells = [["pid", "model", "url", "engine", "scheme", "memory", "health"]]
    cells += [
        [
            str(row.served.pid),
            printable(row.served.served_name),
            row.served.url,
            row.served.engine,
            row.served.scheme,
            show_bytes(row.memory_bytes),
            "ok" if row.healthy else "no answer",
        ]
        for row in rows
    ]
    return table(cells, right=frozenset({0, 5}))


def launch_text(plan: Plan, launch: Launch) -> str:
    """What would be started, and why it is set as it is."""
    lines = [f"environment: {launch.environment}"]
    lines += [f"variable: {name}={printable(value)}" for name, value in sorted(launch.env.items())]
    if launch.job:
        request = json.dumps(dict(launch.request), ensure_ascii=False)
        lines += [f"worker: {launch.job}", f"request: {printable(request)}"]
    else:
        lines.append(f"command: python -m {printable(shlex.join(launch.arguments))}")
    lines += [f"{s.name} = {s.value} ({s.source}: {printable(s.because)})" for s in plan.settings]
    return "\n".join(lines) + "\n"


def exposed_text(host: str, *, keyed: bool) -> str | None:
    """A warning for a server that others can reach; None where there is nothing to warn of."""
    if host in LOOPBACK or keyed:
        return None
    return (
        f"warning: everyone who reaches this machine may use the server ({host}); "
        "set MOPT_API_KEY to ask for a key\n"
    )

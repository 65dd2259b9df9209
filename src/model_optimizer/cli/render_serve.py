"""Servers as text."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Launch, Plan
from model_optimizer.core.units import show_bytes
from model_optimizer.flow.serve import Started, shown
from model_optimizer.serve import Served
from model_optimizer.serve.printed import Compared

from .render import printable, table

ROUNDED = 0.0051
"""Engines print two places."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A server as it is now. `running` is False while it waits for another start."""

    served: Served
    healthy: bool
    memory_bytes: int | None
    running: bool = True

    @property
    def health(self) -> str:
        if not self.running:
            return "between starts"
        if not self.served.url:
            return "starting"
        return "ok" if self.healthy else "no answer"

    @property
    def kept_by(self) -> str:
        """What ends it: `--stop` alone, or also the end of the process that watches it."""
        watcher = f"pid {self.served.supervisor}" if self.served.supervisor else "itself"
        return f"{watcher}, start {self.served.starts}" if self.served.starts > 1 else watcher


def ready_text(
    served: Served,
    task: str,
    memory_bytes: int | None,
    *,
    keyed: bool,
    detached: bool,
    notes: Sequence[str] = (),
) -> str:
    """Where the server is and how to ask it. `notes` are what its start showed."""
    held = "memory unknown" if memory_bytes is None else f"{show_bytes(memory_bytes)} of memory"
    lines = [
        f"{printable(served.served_name)} is served at {served.url}",
        f"  {served.engine}, {served.scheme}, {held}, {_who(served)}",
        *(f"  {note}" for note in notes),
        f"  log: {printable(served.log)}",
        "",
        curl(served, task, keyed=keyed),
        "",
        f"stop it with: mopt serve --stop {served.key}" if detached else "Ctrl-C stops it.",
    ]
    return "\n".join(lines) + "\n"


def _who(served: Served) -> str:
    return f"container {served.container[:12]}" if served.container else f"pid {served.pid}"


def started_lines(started: Started) -> tuple[str, ...]:
    """What was changed to make it start, and its KV cache beside the prediction."""
    lines = [f"changed to fit: {printable(shown(change))}" for change in started.changes]
    lines += [compared_text(one) for one in started.compared]
    return tuple(lines)


def compared_text(one: Compared) -> str:
    """`KV cache: 814,368 tokens (predicted 812,000, 0.3 % too few)`."""
    names = {"kv_cache_tokens": "KV cache", "max_concurrency": "requests of full length at once"}
    unit = " tokens" if one.quantity == "kv_cache_tokens" else ""
    said = f"{names[one.quantity]}: {one.printed:,.10g}{unit}"
    if one.predicted is None or one.error is None:
        return f"{said} (not predicted)"
    off = f"{abs(one.error):.1%}".replace("%", " %")
    if abs(one.predicted - one.printed) <= ROUNDED:
        return f"{said} (as predicted)"
    much = "many" if one.error > 0 else "few"
    return f"{said} (predicted {one.predicted:,.6g}, {off} too {much})"


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
        return "no server of `mopt serve` is running\n"
    cells = [["pid", "model", "url", "engine", "scheme", "memory", "health", "watched by"]]
    cells += [
        [
            str(row.served.pid),
            printable(row.served.served_name),
            row.served.url,
            row.served.engine,
            row.served.scheme,
            show_bytes(row.memory_bytes),
            row.health,
            row.kept_by,
        ]
        for row in rows
    ]
    return table(cells, right=frozenset({0, 5}))


def launch_text(plan: Plan, launch: Launch) -> str:
    """What would be started, and why it is set as it is."""
    lines = [] if launch.program else [f"environment: {launch.environment}"]
    lines += [f"variable: {name}={printable(value)}" for name, value in sorted(launch.env.items())]
    if launch.job:
        request = json.dumps(dict(launch.request), ensure_ascii=False)
        lines += [f"worker: {launch.job}", f"request: {printable(request)}"]
    elif launch.program:
        lines.append(f"command: {printable(shlex.join((launch.program, *launch.arguments)))}")
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

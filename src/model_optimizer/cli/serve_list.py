"""`mopt serve --status` and `--stop`: the servers of every terminal."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .serve_records import folder

if TYPE_CHECKING:
    from model_optimizer.serve import Served

    from .render_serve import Row


def show(as_json: bool) -> None:
    import json

    from model_optimizer.cli import render_serve
    from model_optimizer.core import codec
    from model_optimizer.serve import list_served

    rows = [row_of(served) for served in list_served(folder())]
    if as_json:
        body = [
            {**codec.to_builtins(r.served), "healthy": r.healthy, "memory_bytes": r.memory_bytes}
            for r in rows
        ]
        click.echo(json.dumps({"servers": body}, indent=2, ensure_ascii=False))
    else:
        click.echo(render_serve.status_text(rows), nl=False)


def stop(which: str | None, as_json: bool) -> None:
    import json

    from model_optimizer.core import codec
    from model_optimizer.serve import end, forget, list_served

    found = list_served(folder())
    chosen = _chosen(found, which)
    for served in chosen:
        end(served)
        forget(folder(), served)
        place = Path(served.log).parent
        if place.parent == folder():
            shutil.rmtree(place, ignore_errors=True)
    if as_json:
        click.echo(json.dumps({"stopped": [codec.to_builtins(s) for s in chosen]}, indent=2))
    else:
        lines = [f"stopped {s.served_name} (pid {s.pid})" for s in chosen]
        click.echo("\n".join(lines or ["no server of `mopt serve` is running"]))


def row_of(served: "Served") -> "Row":
    """A server as it is now."""
    from model_optimizer.cli.render_serve import Row
    from model_optimizer.serve import attach
    from model_optimizer.system import local_http

    handle = attach(served)
    memory = handle.memory_bytes()[0] if handle else None
    if handle:
        handle.detach()
    asked = handle is not None and served.url
    reply = local_http.ask(f"{served.url}/health", timeout_s=2.0) if asked else None
    return Row(
        served=served,
        healthy=reply is not None and reply.status == 200,
        memory_bytes=memory,
        running=handle is not None,
    )


def _chosen(found: "Sequence[Served]", which: str | None) -> "Sequence[Served]":
    """By pid, port or name; without a word the only one there is, or none."""
    from model_optimizer.core import UsageError

    if which == "all" or (which is None and len(found) < 2):
        return found
    chosen = [
        s for s in found if which in (str(s.pid), str(s.supervisor), s.url.rpartition(":")[2], s.served_name)
    ]
    if which and chosen:  # one that has no address yet has no port
        return chosen
    known = ", ".join(f"{s.pid} ({s.served_name}, {s.url})" for s in found) or "none"
    what = "which of the servers to stop was not said" if which is None else f"no server of mopt is `{which}`"
    raise UsageError(what, hint=(f"running: {known}",))

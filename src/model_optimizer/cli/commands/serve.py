"""`mopt serve`: run a plan, an artefact or a model, and watch it."""

import dataclasses
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import options

if TYPE_CHECKING:
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import Engine
    from model_optimizer.serve import Order, Served, ServerHandle, Wish

GROUP = "run"
WATCH_S = 0.5


def pairs(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """`name=value` as a mapping."""
    from model_optimizer.core import UsageError

    found: dict[str, str] = {}
    for text in value:
        name, equals, rest = text.partition("=")
        if not equals or not name or not rest:
            raise UsageError(f"`{text}` is not NAME=VALUE", hint=("for example --set threads=2",))
        found[name.replace("-", "_")] = rest
    return found


@click.command(short_help="Run a plan, an artefact or a model, supervised.")
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--engine", help="The engine; left out, the plain one that reads the model's format.")
@click.option("--scheme", help="The number format; left out, what the model is stored in.")
@click.option("--port", type=click.IntRange(1024, 65535), help="Default: a free one.")
@click.option("--host", help="The address to listen on. Default: 127.0.0.1, this machine alone.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="Most tokens of prompt and answer.")
@click.option("--max-num-seqs", type=click.IntRange(min=1), help="Requests that are computed at once.")
@click.option(
    "--set", "settings", multiple=True, callback=pairs, metavar="NAME=VALUE", help="Any other setting."
)
@click.option(
    "--python", type=click.Path(path_type=Path, dir_okay=False), help="The interpreter to run it with."
)
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="Where its output is kept.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and each setting's reason.")
@click.option("--detach", is_flag=True, help="Leave it running; --status and --stop find it again.")
@click.option("--status", is_flag=True, help="List the detached servers.")
@click.option("--stop", is_flag=True, help="Stop a detached server: TARGET is its pid, port, name, or `all`.")
@options.as_json
def COMMAND(
    target: str | None,
    engine: str | None,
    scheme: str | None,
    port: int | None,
    host: str | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    settings: dict[str, str],
    python: Path | None,
    log: Path | None,
    dry_run: bool,
    detach: bool,
    status: bool,
    stop: bool,
    as_json: bool,
) -> None:
    """Serve TARGET over HTTP in OpenAI's words, and stop it with Ctrl-C.

    TARGET is a run folder (its winner), a plan.json, a folder that `mopt quantize` or `mopt convert` made, or
    a model (folder or hub id). Language models answer /v1/completions and /v1/chat/completions, embedding
    models /v1/embeddings. With MOPT_API_KEY set, clients must send it as their bearer token.
    """
    from model_optimizer.core import UsageError, plugins
    from model_optimizer.serve import Wish

    if status and stop:
        raise UsageError("--status and --stop exclude each other")
    if status:
        _show_status(as_json)
        return
    if stop:
        _stop(target, as_json)
        return
    if target is None:
        raise UsageError("nothing to serve was named", hint=("mopt serve ./my-model", "mopt serve --status"))
    named = {"host": host, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs}
    wish = Wish(
        engine=plugins.canonical(engine) if engine else None,
        scheme=plugins.canonical(scheme) if scheme else None,
        settings={**{k: str(v) for k, v in named.items() if v is not None}, **settings},
    )
    _serve(target, wish, port, python, log, dry_run=dry_run, detach=detach, as_json=as_json)


def _serve(
    target: str,
    wish: "Wish",
    port: int | None,
    python: Path | None,
    log: Path | None,
    *,
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> None:
    from model_optimizer.cli import render_serve
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import plugins
    from model_optimizer.serve import resolve
    from model_optimizer.system import probe

    engines = plugins.load_all("model_optimizer.engines")
    schemes = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
    order = resolve(target, wish, probe.probe(), engines=engines, schemes=schemes)
    engine = engines[order.plan.engine]
    if dry_run:
        plan = dataclasses.replace(order.plan, checkpoint=order.artifact.path, format=order.artifact.format)
        click.echo(render_serve.launch_text(plan, engine.launch(plan, port or 8000)), nl=False)
        return
    key = os.environ.get("MOPT_API_KEY") or None
    warning = render_serve.exposed_text(order.plan.setting("host") or "127.0.0.1", keyed=key is not None)
    if warning:
        click.echo(warning, nl=False, err=True)
    reporter = Reporter()
    kept = log or _place(order.plan.model) / "serve.log"
    try:
        server = _start(order, engine, kept, reporter, port, key, python, outlive=detach)
    finally:
        reporter.close()
    _run(server, order, keyed=key is not None, own_log=log is None, detach=detach, as_json=as_json)


def _start(
    order: "Order",
    engine: "Engine",
    log: Path,
    reporter: "Reporter",
    port: int | None,
    key: str | None,
    python: Path | None,
    *,
    outlive: bool,
) -> "ServerHandle":
    from functools import partial

    from model_optimizer.serve import start, start_launch

    return start(
        order.plan,
        order.artifact,
        engine=engine,
        log=log,
        progress=reporter,
        start_process=partial(start_launch, python=python),
        port=port,
        key=key,
        outlive=outlive,
    )


def _run(
    server: "ServerHandle", order: "Order", *, keyed: bool, own_log: bool, detach: bool, as_json: bool
) -> None:
    """Say where it is, then watch it, or leave it."""
    from model_optimizer.cli import render_serve
    from model_optimizer.core import codec
    from model_optimizer.serve import Served, remember

    served = Served(
        served_name=server.served_name,
        url=server.url,
        pid=server.pid,
        started_at=server.started_at,
        engine=order.plan.engine,
        scheme=order.plan.scheme,
        model=order.artifact.path,
        log=str(server.log.absolute()),
    )
    try:
        memory, _how = server.memory_bytes()
        task = order.plan.workload.task
        text = render_serve.ready_text(served, task, memory, keyed=keyed, detached=detach)
        if detach:
            remember(_folder(), served)
        click.echo(codec.dumps(served) if as_json else text, nl=False)
        if detach:
            server.detach()
            return
        while server.alive():
            time.sleep(WATCH_S)
        raise server.why_ended()
    except KeyboardInterrupt:
        server.stop()
        click.echo("stopped", err=True)
        if own_log:
            shutil.rmtree(server.log.parent, ignore_errors=True)
    except BaseException:
        server.stop()
        raise


def _show_status(as_json: bool) -> None:
    import json

    from model_optimizer.cli import render_serve
    from model_optimizer.core import codec
    from model_optimizer.serve import list_served

    rows = [_row(served) for served in list_served(_folder())]
    if as_json:
        body = [
            {**codec.to_builtins(r.served), "healthy": r.healthy, "memory_bytes": r.memory_bytes}
            for r in rows
        ]
        click.echo(json.dumps({"servers": body}, indent=2, ensure_ascii=False))
    else:
        click.echo(render_serve.status_text(rows), nl=False)


def _row(served: "Served"):
    from model_optimizer.cli.render_serve import Row
    from model_optimizer.serve import attach
    from model_optimizer.system import local_http

    handle = attach(served)
    memory = handle.memory_bytes()[0] if handle else None
    if handle:
        handle.detach()
    reply = local_http.ask(f"{served.url}/health", timeout_s=2.0)
    return Row(served=served, healthy=reply is not None and reply.status == 200, memory_bytes=memory)


def _stop(which: str | None, as_json: bool) -> None:
    import json

    from model_optimizer.core import codec
    from model_optimizer.serve import attach, forget, list_served

    found = list_served(_folder())
    chosen = _chosen(found, which)
    for served in chosen:
        if handle := attach(served):
            handle.stop()
        forget(_folder(), served)
        place = Path(served.log).parent
        if place.parent == _folder():
            shutil.rmtree(place, ignore_errors=True)
    if as_json:
        click.echo(json.dumps({"stopped": [codec.to_builtins(s) for s in chosen]}, indent=2))
    else:
        click.echo("".join(f"stopped {s.served_name} (pid {s.pid})\n" for s in chosen), nl=False)


def _chosen(found: "Sequence[Served]", which: str | None) -> "Sequence[Served]":
    """By pid, port or name; without a word the only one there is."""
    from model_optimizer.core import UsageError

    if which == "all" or (which is None and len(found) == 1):
        return found
    chosen = [s for s in found if which in (str(s.pid), s.url.rpartition(":")[2], s.served_name)]
    if chosen:
        return chosen
    known = ", ".join(f"{s.pid} ({s.served_name}, {s.url})" for s in found) or "none"
    what = (
        "which of the servers to stop was not said" if which is None else f"no detached server is `{which}`"
    )
    raise UsageError(what, hint=(f"running: {known}",))


def _folder() -> Path:
    from model_optimizer.system import files

    return files.data_home() / "servers"


def _place(model: str) -> Path:
    """A new folder for the log of one server."""
    from pathlib import PurePath

    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in PurePath(model).name) or "model"
    return _folder() / f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"

"""`mopt serve`: run a plan, an artefact or a model, and watch it."""

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_optimizer.cli import options

if TYPE_CHECKING:
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import Engine, MoptError
    from model_optimizer.flow.serve import How, Room, Started
    from model_optimizer.serve import Order, Restart, Served, ServerHandle, Wish
    from model_optimizer.system.processes import Running

GROUP = "run"
ADAPTATIONS = 4
CHILD = "MOPT_SERVE_SUPERVISED"
"""Set for the process that --detach --restart leaves behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options of `serve` say."""

    target: str
    wish: "Wish"
    how: "How"
    restart: "Restart"
    env: Mapping[str, str]
    detach: bool
    own_log: bool
    as_json: bool


@click.command(short_help="Run a plan, an artefact or a model, supervised.")
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--engine", help="The engine; left out, the plain one that reads the model's format.")
@click.option("--scheme", help="The number format; left out, what the model is stored in.")
@click.option("--port", type=click.IntRange(1024, 65535), help="Default: a free one.")
@click.option("--host", help="The address to listen on. Default: 127.0.0.1, this machine alone.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="Most tokens of prompt and answer.")
@click.option("--max-num-seqs", type=click.IntRange(min=1), help="Requests that are computed at once.")
@options.pairs("--set", "settings", options.PairType(), "Any other setting of the engine.")
@options.pairs("--env", "env", options.VARIABLE, "A variable of the engine's environment.")
@click.option(
    "--python", type=click.Path(path_type=Path, dir_okay=False), help="The interpreter to run it with."
)
@click.option(
    "--program",
    type=click.Path(dir_okay=False),
    help="The executable of an engine that is a program (llama-server). Default: from PATH.",
)
@click.option(
    "--container",
    is_flag=False,
    flag_value="",
    metavar="[IMAGE]",
    help="Run the engine's image with docker or podman; without IMAGE, the plan's.",
)
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="Where its output is kept.")
@click.option(
    "--start-limit",
    type=options.SecondsType(),
    default="600",
    show_default=True,
    help="How long a start may take, for example 20m.",
)
@click.option(
    "--restart",
    default="no",
    metavar="no|on-failure[:N]",
    help="Start it again when it fails or hangs, after growing pauses, N times in a row at most.",
)
@click.option("--adapt", is_flag=True, help="When memory stops a start, take the next plan.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and each setting's reason.")
@click.option("--detach", is_flag=True, help="Leave it running; --status and --stop find it again.")
@click.option("--status", is_flag=True, help="List the servers.")
@click.option("--stop", is_flag=True, help="Stop a server: TARGET is its pid, port, name, or `all`.")
@options.as_json
def COMMAND(
    target: str | None,
    engine: str | None,
    scheme: str | None,
    host: str | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    settings: dict[str, str],
    restart: str,
    status: bool,
    stop: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """Serve TARGET over HTTP in OpenAI's words, and stop it with Ctrl-C.

    TARGET is a run folder (its winner), a plan.json, a folder that `mopt quantize` or `mopt convert` made, a
    .gguf file, or a model (folder or hub id). Language models answer /v1/completions and
    /v1/chat/completions, embedding models /v1/embeddings. With MOPT_API_KEY set, clients must send it as
    their bearer token.
    """
    from model_optimizer.core import UsageError, plugins
    from model_optimizer.serve import Restart, Wish

    if status and stop:
        raise UsageError("--status and --stop exclude each other")
    if status:
        _show_status(as_json)
        return
    if stop:
        _stop(target, as_json)
        return
    if target is None:
        eaten = others["container"]
        hints = (f"write --container= before it: mopt serve --container= {eaten}",) if eaten else ()
        raise UsageError(
            "nothing to serve was named", hint=(*hints, "mopt serve ./my-model", "mopt serve --status")
        )
    named = {"host": host, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs}
    wish = Wish(
        engine=plugins.canonical(engine) if engine else None,
        scheme=plugins.canonical(scheme) if scheme else None,
        settings={**{k: str(v) for k, v in named.items() if v is not None}, **settings},
    )
    _serve(target, wish, Restart.parse(restart), as_json=as_json, **others)


def _serve(
    target: str,
    wish: "Wish",
    restart: "Restart",
    *,
    env: dict[str, str],
    port: int | None,
    python: Path | None,
    program: str | None,
    container: str | None,
    log: Path | None,
    start_limit: float,
    adapt: bool,
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> None:
    from model_optimizer.cli import render_serve
    from model_optimizer.core import UsageError, plugins
    from model_optimizer.flow.serve import How, prepared
    from model_optimizer.serve import resolve
    from model_optimizer.system import containers, probe

    if log is not None and log.exists() and not log.is_file():
        raise UsageError(f"`{log}` is no file that a log can be kept in", hint=("name a file with --log",))
    engines = plugins.load_all("model_optimizer.engines")
    schemes = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
    room = _room(probe.probe())
    order = resolve(target, wish, room.host, engines=engines, schemes=schemes)
    order = dataclasses.replace(order, plan=dataclasses.replace(order.plan, env={**order.plan.env, **env}))
    engine = engines[order.plan.engine]
    runtime = None if container is None else "docker" if dry_run else containers.runtime()
    asked = Asked(
        target=target,
        wish=wish,
        how=How(
            log=log or _place(order.plan.model) / "serve.log",
            port=port,
            key=os.environ.get("MOPT_API_KEY") or None,
            python=python,
            program=program,
            runtime=runtime,
            image=container or None,
            gpus=room.host.gpus != (),
            limit_s=start_limit,
            outlive=detach,
            adapt=ADAPTATIONS if adapt else 0,
        ),
        restart=restart,
        env=env,
        detach=detach,
        own_log=log is None,
        as_json=as_json,
    )
    wrapped = prepared(order, engine, asked.how)
    if dry_run:
        plan = dataclasses.replace(order.plan, checkpoint=order.artifact.path, format=order.artifact.format)
        click.echo(render_serve.launch_text(plan, wrapped.launch(plan, port or 8000)), nl=False)
        return
    warning = render_serve.exposed_text(
        order.plan.setting("host") or "127.0.0.1", keyed=asked.how.key is not None
    )
    if warning:
        click.echo(warning, nl=False, err=True)
    if detach and restart.most:
        _leave_a_supervisor(order, asked)
    else:
        _supervise(order, engine, room, asked)


def _room(host: "Any") -> "Room":
    from model_optimizer import api
    from model_optimizer.core import GpuMemory, MoptError
    from model_optimizer.flow.serve import Room

    def gpu() -> GpuMemory | None:
        try:
            return api.gpu_memory(None, host=host)
        except MoptError:
            return None

    return Room(host=host, fit=api.fit, scheme=api.scheme, gpu=gpu)


def _supervise(order: "Order", engine: "Engine", room: "Room", asked: Asked) -> None:
    """Start it, say where it is, and watch it, or leave it."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.system import processes

    with processes.interruptible():
        reporter = Reporter()
        began = _Began(order, asked)
        try:
            started = _begin(order, engine, room, dataclasses.replace(asked.how, began=began), reporter)
        except BaseException:
            began.forget()
            raise
        finally:
            reporter.close()
        try:
            if asked.detach:
                _announce(started, asked, starts=1)
                started.server.detach()
                return
            _watch(started, engine, room, asked)
        except BaseException:
            started.server.stop()
            raise


class _Began:
    """Keeps a container as soon as there is one: unlike a process it goes on when this program is killed."""

    def __init__(self, order: "Order", asked: Asked) -> None:
        self._order, self._asked = order, asked
        self._kept: Served | None = None

    def __call__(self, running: "Running") -> None:
        from model_optimizer.serve import Served, remember
        from model_optimizer.system.containers import Contained

        if isinstance(running, Contained):
            plan = self._order.plan
            watcher, since = _watcher(self._asked)
            self._kept = Served(
                served_name=Path(plan.model).name,
                url="",
                pid=running.pid,
                started_at=running.started_at,
                engine=plan.engine,
                scheme=plan.scheme,
                model=self._order.artifact.path,
                log=str(self._asked.how.log.absolute()),
                runtime=running.runtime,
                container=running.container,
                supervisor=watcher,
                supervisor_started_at=since,
            )
            remember(_folder(), self._kept)

    def forget(self) -> None:
        from model_optimizer.serve import forget

        if self._kept is not None:
            forget(_folder(), self._kept)


def _watcher(asked: Asked) -> tuple[int | None, float]:
    """Who watches a server, and since when: this process, or nobody when it is left alone."""
    from model_optimizer.system import processes

    return (None, 0.0) if asked.detach else (os.getpid(), processes.own_start())


def _begin(order: "Order", engine: "Engine", room: "Room", how: "How", reporter: "Reporter") -> "Started":
    """Raises the error of a start with the next plan as a command that can be run."""
    import shlex

    from model_optimizer.flow.serve import NextPlan, begin, shown

    try:
        return begin(order, engine, room, how, reporter)
    except NextPlan as error:
        more = [
            word for name, value in error.change.settings.items() for word in ("--set", f"{name}={value}")
        ]
        command = shlex.join(["mopt", *sys.argv[1:], *more])
        error.hint = (
            f"next plan: {command}",
            f"because {shown(error.change)}",
            "or have it taken by itself: --adapt",
            *error.hint,
        )
        raise


def _announce(started: "Started", asked: Asked, *, starts: int) -> "Served":
    """Say where it is and how to ask it, and keep that for --status and --stop."""
    from model_optimizer.cli import render_serve
    from model_optimizer.core import codec
    from model_optimizer.serve import remember

    served = _served(started, asked, starts)
    remember(_folder(), served)
    if starts > 1:
        click.echo(f"{served.served_name} answers again at {served.url}, pid {served.pid}", err=True)
        return served
    if asked.as_json:
        click.echo(codec.dumps(served), nl=False)
        return served
    memory, _how = started.server.memory_bytes()
    text = render_serve.ready_text(
        served,
        started.order.plan.workload.task,
        memory,
        keyed=asked.how.key is not None,
        detached=asked.detach,
        notes=render_serve.started_lines(started),
    )
    click.echo(text, nl=False)
    return served


def _served(started: "Started", asked: Asked, starts: int) -> "Served":
    from model_optimizer.serve import Served
    from model_optimizer.system.containers import Contained

    server, plan = started.server, started.order.plan
    running = server.running
    inside = running if isinstance(running, Contained) else None
    found = {one.quantity: one for one in started.compared}
    tokens, most = found.get("kv_cache_tokens"), found.get("max_concurrency")
    watcher, since = _watcher(asked)
    return Served(
        served_name=server.served_name,
        url=server.url,
        pid=server.pid,
        started_at=server.started_at,
        engine=plan.engine,
        scheme=plan.scheme,
        model=started.order.artifact.path,
        log=str(server.log.absolute()),
        supervisor=watcher,
        supervisor_started_at=since,
        runtime=inside.runtime if inside else None,
        container=inside.container if inside else None,
        starts=starts,
        kv_cache_tokens=round(tokens.printed) if tokens else None,
        kv_cache_tokens_predicted=round(tokens.predicted) if tokens and tokens.predicted else None,
        max_concurrency=most.printed if most else None,
        max_concurrency_predicted=most.predicted if most else None,
    )


def _watch(started: "Started", engine: "Engine", room: "Room", asked: Asked) -> None:
    """Say where it is, then until it ends for good, or Ctrl-C."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.flow import serve as flow
    from model_optimizer.serve import Outside, forget, watch

    count = 1
    how = dataclasses.replace(asked.how, port=int(started.server.url.rpartition(":")[2]))

    def again() -> "ServerHandle":
        nonlocal count
        reporter = Reporter()
        try:
            found = flow.begin(started.order, engine, room, how, reporter)
        finally:
            reporter.close()
        count += 1
        _announce(found, asked, starts=count)
        return found.server

    def explain(error: "MoptError", server: "ServerHandle | None") -> "MoptError":
        return flow.explained(error, server, asked.how.log)

    outside = Outside(say=lambda text: click.echo(text, err=True), explain=explain)
    error: MoptError | None = None
    served: Served | None = None
    try:
        served = _announce(started, asked, starts=1)
        error = watch(started.server, again, asked.restart, outside)
    except KeyboardInterrupt:
        started.server.stop()  # Ctrl-C may come as soon as the address is said, before the watching
        click.echo("stopped", err=True)
        if asked.own_log:
            shutil.rmtree(asked.how.log.parent, ignore_errors=True)
    finally:
        if served is not None:
            forget(_folder(), served)
    if error is not None:
        raise error


def _leave_a_supervisor(order: "Order", asked: Asked) -> None:
    """Another `mopt serve` without a terminal, which watches and restarts; until its server answers."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.system import processes

    words = [w for w in sys.argv[1:] if w not in ("--detach", "--json")]
    place = asked.how.log.parent
    own = place / "supervisor.log"
    command = [sys.executable, "-m", "model_optimizer", *words]
    if asked.own_log:
        command += ["--log", str(asked.how.log)]
    running = processes.start(command, log=own, env={**os.environ, CHILD: "1"})
    reporter = Reporter()
    try:
        served = _wait_for(running.pid, running.poll, lambda: reporter(_last_line(own), None))
    except BaseException:
        running.stop(grace_s=30.0)
        raise
    finally:
        reporter.close()
    if served is None:
        click.echo(
            processes.tail(own, 40, from_byte=running.log_from) and own.read_text("utf-8", "replace"),
            nl=False,
            err=True,
        )
        raise SystemExit(running.poll() or 1)
    _say_detached(served, order, asked)


def _wait_for(supervisor: int, ended: Callable[[], int | None], each: Callable[[], None]) -> "Served | None":
    """The server of a supervisor once it answers; None when the supervisor ended before."""
    from model_optimizer.serve import list_served

    while ended() is None:
        found = next((s for s in list_served(_folder()) if s.supervisor == supervisor), None)
        if found is not None:
            return found
        each()
        time.sleep(0.2)
    return None


def _last_line(log: Path) -> str:
    from model_optimizer.system import processes

    return (processes.tail(log, 1) or ("starting",))[0]


def _say_detached(served: "Served", order: "Order", asked: Asked) -> None:
    from model_optimizer.cli import render_serve
    from model_optimizer.core import codec

    if asked.as_json:
        click.echo(codec.dumps(served), nl=False)
        return
    text = render_serve.ready_text(
        served,
        order.plan.workload.task,
        _row(served).memory_bytes,
        keyed=asked.how.key is not None,
        detached=True,
    )
    click.echo(text, nl=False)


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
    asked = handle is not None and served.url
    reply = local_http.ask(f"{served.url}/health", timeout_s=2.0) if asked else None
    return Row(
        served=served,
        healthy=reply is not None and reply.status == 200,
        memory_bytes=memory,
        running=handle is not None,
    )


def _stop(which: str | None, as_json: bool) -> None:
    import json

    from model_optimizer.core import codec
    from model_optimizer.serve import end, forget, list_served

    found = list_served(_folder())
    chosen = _chosen(found, which)
    for served in chosen:
        end(served)
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
    chosen = [
        s for s in found if which in (str(s.pid), str(s.supervisor), s.url.rpartition(":")[2], s.served_name)
    ]
    if chosen:
        return chosen
    known = ", ".join(f"{s.pid} ({s.served_name}, {s.url})" for s in found) or "none"
    what = "which of the servers to stop was not said" if which is None else f"no server of mopt is `{which}`"
    raise UsageError(what, hint=(f"running: {known}",))


def _folder() -> Path:
    from model_optimizer.system import files

    return files.data_home() / "servers"


def _place(model: str) -> Path:
    """A new folder for the log of one server."""
    from pathlib import PurePath

    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in PurePath(model).name) or "model"
    return _folder() / f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"

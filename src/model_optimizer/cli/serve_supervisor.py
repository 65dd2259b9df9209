"""Who watches a server of `mopt serve`: this process, or one without a terminal that is left behind."""

import dataclasses
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from .serve_list import row_of
from .serve_records import Asked, Began, folder, record_of

if TYPE_CHECKING:
    from model_optimizer.core import Engine, MoptError
    from model_optimizer.flow.serve import How, Room, Started
    from model_optimizer.serve import Order, Served, ServerHandle

    from .progress import Reporter


def supervise(order: "Order", engine: "Engine", room: "Room", asked: Asked) -> None:
    """Start it, say where it is, and watch it, or leave it."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.system import processes

    with processes.interruptible():
        reporter = Reporter()
        began = Began(order, asked)
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


def leave_behind(order: "Order", asked: Asked) -> None:
    """Another `mopt serve` without a terminal, which watches and restarts; until its server answers."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.system import processes

    words = [w for w in sys.argv[1:] if w not in ("--detach", "--json")]
    place = asked.how.log.parent
    own = place / "supervisor.log"
    command = [sys.executable, "-m", "model_optimizer", *words]
    if asked.own_log:
        command += ["--log", str(asked.how.log)]
    running = processes.start(command, log=own, rotation=asked.how.rotation)
    reporter = Reporter()
    try:
        served = _wait_for(running.pid, running.poll, lambda: reporter(_last_line(own), None))
    except BaseException:
        running.stop(grace_s=30.0)
        raise
    finally:
        reporter.close()
    if served is None:
        _say_why(processes.tail(own, 40, from_byte=running.log_from), running.poll() or 1)
    _say_detached(served, order, asked)


def _say_why(said: Sequence[str], code: int) -> NoReturn:
    """What a supervisor that ended said last, and its exit code. ToolError where it said nothing."""
    from model_optimizer.core import ToolError
    from model_optimizer.system import processes

    if not said:
        raise ToolError(
            f"the process that was to watch the server ended without a word ({processes.how_it_ended(code)})",
            hint=("leave --detach out: what happens is then seen in this terminal",),
        )
    click.echo("\n".join(said), err=True)
    raise SystemExit(code if code > 0 else ToolError.exit_code)


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

    served = record_of(started, asked, starts)
    remember(folder(), served)
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
            forget(folder(), served)
    if error is not None:
        raise error


def _wait_for(supervisor: int, ended: Callable[[], int | None], each: Callable[[], None]) -> "Served | None":
    """The server of a supervisor once it answers; None when the supervisor ended before."""
    from model_optimizer.serve import list_served

    while ended() is None:
        # A container is written down when it is made, with an address when it answers.
        found = next((s for s in list_served(folder()) if s.supervisor == supervisor and s.url), None)
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
        row_of(served).memory_bytes,
        keyed=asked.how.key is not None,
        detached=True,
    )
    click.echo(text, nl=False)

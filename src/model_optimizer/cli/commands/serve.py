"""`mopt serve`: run a plan, an artefact or a model, and watch it."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_optimizer.cli import options

if TYPE_CHECKING:
    from model_optimizer.flow.serve import Room
    from model_optimizer.serve import Restart, Wish

GROUP = "run"
ADAPTATIONS = 4
LEAST_LOG_BYTES = 1 << 20


@click.command(short_help="Run a plan, an artefact or a model, supervised.")
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--engine", help="The engine; left out, the plain one that reads the model's format.")
@click.option("--scheme", help="The number format; left out, what the model is stored in.")
@click.option("--port", type=click.IntRange(1024, 65535), help="Default: a free one.")
@click.option("--host", help="The address to listen on. Default: 127.0.0.1, this machine alone.")
@click.option("--max-model-len", type=options.Whole(1), help="Most tokens of prompt and answer.")
@click.option("--max-num-seqs", type=options.Whole(1), help="Requests that are computed at once.")
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
    "--log-size",
    type=options.BytesType(),
    default="64MiB",
    show_default=True,
    help="How long the log may get; then it goes on in a new file, which begins with its first lines.",
)
@click.option(
    "--log-files",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="How many older files of the log are kept: FILE.1 is the latest.",
)
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
    from model_optimizer.cli import serve_list
    from model_optimizer.core import UsageError, plugins
    from model_optimizer.serve import Restart, Wish

    if status and stop:
        raise UsageError("--status and --stop exclude each other")
    if status:
        serve_list.show(as_json)
        return
    if stop:
        serve_list.stop(target, as_json)
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
    log_size: int,
    log_files: int,
    start_limit: float,
    adapt: bool,
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> None:
    from model_optimizer.cli import render_serve
    from model_optimizer.cli.serve_records import Asked, place
    from model_optimizer.cli.serve_supervisor import leave_behind, supervise
    from model_optimizer.core import UsageError, plugins
    from model_optimizer.core.units import show_bytes
    from model_optimizer.flow.serve import How, prepared
    from model_optimizer.serve import resolve
    from model_optimizer.system import containers, probe
    from model_optimizer.system.processes import Rotation

    if log is not None and log.exists() and not log.is_file():
        raise UsageError(f"`{log}` is no file that a log can be kept in", hint=("name a file with --log",))
    if log_size < LEAST_LOG_BYTES:
        raise UsageError(
            f"--log-size must be at least {show_bytes(LEAST_LOG_BYTES)}, not {show_bytes(log_size)}"
        )
    engines = plugins.load_all("model_optimizer.engines")
    schemes = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
    room = _room(probe.probe())
    order = resolve(target, wish, room.host, engines=engines, schemes=schemes)
    order = dataclasses.replace(order, plan=dataclasses.replace(order.plan, env={**order.plan.env, **env}))
    engine = engines[order.plan.engine]
    runtime = None if container is None else "docker" if dry_run else containers.runtime()
    asked = Asked(
        how=How(
            log=log or place(order.plan.model) / "serve.log",
            rotation=Rotation(limit_bytes=log_size, older=log_files),
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
        leave_behind(order, asked)
    else:
        supervise(order, engine, room, asked)


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

"""`mopt plan`: engine, release, number format, parallelism, replicas and settings for four constraints."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import options, placement
from model_optimizer.cli.commands.estimate import Speculative
from model_optimizer.core import UsageError

if TYPE_CHECKING:
    from model_optimizer.core import Plan, ReadModel
    from model_optimizer.core.question import SpeculationAsked, StepSource
    from model_optimizer.facts.prices import Prices

GROUP = "understand"

EMIT = (
    "command",
    "docker",
    "ollama",
    "vllm",
    "sglang",
    "trtllm-serve",
    "llama-server",
    "tensorrt",
    "tensorrt-rtx",
)
APIS = ("openai", "streaming")


def _driver(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """UsageError for what is no version of a driver."""
    from model_optimizer.facts.versions import key

    if value is None:
        return None
    number = value.strip().lower().removeprefix("r")  # R580 is a branch
    try:
        key(number)
    except UsageError:
        raise UsageError(
            f"`--driver {value}` is not the version of a driver",
            hint=("write for example 570.86.10; `nvidia-smi` shows it",),
        ) from None
    return number


@click.command(short_help="Which engine, format, GPUs and settings meet the four constraints?")
@click.argument("model", required=False)
@placement.asked
@options.load
@options.slo
@click.option("--quality", type=options.Real(0, 1, min_open=True), help="Least quality to keep.")
@click.option("--shared-prefix", type=options.Whole(0), default=0, help="Prompt tokens that all share.")
@click.option("--texts", type=placement.POSITIVE, default=1, help="Texts of a request (embeddings).")
@placement.images
@click.option(
    "--driver", callback=_driver, metavar="VERSION", help="The NVIDIA driver there, for example 570.86.10."
)
@click.option("--spares", type=options.Whole(0), help="Replicas that may die without breaking a limit.")
@click.option("--build-minutes", type=options.Real(min=0), default=0, help="Build time allowed a change.")
@click.option("--changes", type=options.Real(min=0), default=1, help="Changes of the model a month.")
@click.option("--tools", is_flag=True, help="Tool calls are used.")
@click.option(
    "--api", "apis", multiple=True, type=click.Choice(APIS), help="What clients need of the server."
)
@click.option("--kv-offload", type=options.BytesType(), default=0, help="Host memory for KV cache.")
@click.option(
    "--speculative", type=Speculative(), help="Drafted tokens: ngram:4, draft:4:0.6, eagle3:3, mtp:1."
)
@click.option("--draft-model", metavar="MODEL", help="What drafts, for --speculative draft and eagle3.")
@click.option(
    "--step-model",
    type=click.Choice(["auto", "roofline", "tables", "measured"]),
    default="auto",
    show_default=True,
    help="Where times of steps come from; auto takes measurements, then the roofline.",
)
@click.option("--prices", metavar="FILE", help="A price file; `example` shows the form.")
@click.option("--run", "run_folder", type=click.Path(path_type=Path), help="A run whose measurements decide.")
@click.option("--explain", is_flag=True, help="Show the derivation of each decision.")
@click.option("--emit", type=click.Choice(EMIT), help="Print the command alone.")
@click.option(
    "--check",
    "record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PLAN",
    help="Ask again what a written plan, or a lock.json of `mopt tune`, rests on, on this machine.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write plan.json here too.")
@options.host_file
@options.as_json
def COMMAND(
    model: str | None,
    asked: placement.Asked,
    prompt_tokens: options.Lengths | None,
    output_tokens: options.Lengths | None,
    qps: float | None,
    concurrency: int | None,
    requests: int | None,
    ttft_ms: float | None,
    tpot_ms: float | None,
    e2e_ms: float | None,
    percentile: float,
    quality: float | None,
    shared_prefix: int,
    texts: int,
    images: int | None,
    image_size: tuple[int, int] | None,
    driver: str | None,
    spares: int | None,
    build_minutes: float,
    changes: float,
    tools: bool,
    apis: tuple[str, ...],
    kv_offload: int,
    speculative: tuple[str, int, float | None] | None,
    draft_model: str | None,
    step_model: "StepSource",
    prices: str | None,
    run_folder: Path | None,
    explain: bool,
    emit: str | None,
    out: Path | None,
    record: Path | None,
    host_file: Path | None,
    as_json: bool,
) -> None:
    """Find how to serve MODEL on a GPU under a load, and say why.

    MODEL is a hub id, a folder, a config.json or a .gguf file. Without --gpu it is this machine's GPU, and
    without one the CPU. What is left out is assumed, and the answer says so. Exits with 4 when nothing is
    feasible, with the constraint that binds and the nearest plans.
    """
    from model_optimizer import api
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import Slo
    from model_optimizer.flow.plan import PlanRequest, engine_name, implied, measured_in
    from model_optimizer.planner.decide import Wishes
    from model_optimizer.schemes import canonical

    if record is not None:
        if model is not None:
            raise UsageError("--check takes the model from the plan", hint=("leave MODEL out",))
        raise click.exceptions.Exit(_check(record, asked, driver, host_file, as_json=as_json))
    if model is None:
        raise UsageError("no model was named", hint=("see `mopt plan --help`",))
    if as_json and emit:
        raise UsageError("--json and --emit both say what is printed", hint=("leave one of them out",))
    host = api.load_host(host_file) if host_file else None
    name, version = asked.engine or (implied(emit), None)
    request = PlanRequest(
        model=api.read_model(model),
        checkpoint=_loaded(model),
        gpu=asked.gpu_name,
        gpus=asked.gpus[0] if asked.gpus else None,
        host=host,
        driver=driver,
        used_bytes=asked.reserve,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        shared_prefix=shared_prefix,
        qps=qps,
        concurrency=concurrency,
        requests=requests,
        slo=Slo(ttft_ms=ttft_ms, tpot_ms=tpot_ms, e2e_ms=e2e_ms, percentile=percentile, quality=quality),
        wishes=Wishes(
            engine=engine_name(name) if name else None,
            version=version,
            scheme=canonical(asked.scheme) if asked.scheme else None,
            dtype=asked.dtype,
            kv_cache_dtype=None if asked.kv_cache_dtype == "auto" else asked.kv_cache_dtype,
            tensor_parallel=asked.tp,
            pipeline_parallel=asked.pp,
            data_parallel=asked.dp,
            max_model_len=asked.max_model_len,
            max_num_seqs=asked.max_num_seqs,
            max_num_batched_tokens=asked.max_num_batched_tokens,
            gpu_memory_utilization=asked.gpu_memory_utilization,
            block_size=asked.block_size,
            enforce_eager=asked.enforce_eager,
            vram_bytes=asked.vram,
            spares=spares,
            tools=tools,
            kv_offload_bytes=kv_offload,
            speculation=_speculation(speculative, draft_model),
            draft_model=draft_model,
            apis=frozenset(apis),
            env=asked.env,
        ),
        images=images,
        image_size=image_size,
        texts=texts,
        build_minutes=build_minutes,
        changes_per_month=changes,
        prices=_prices(prices),
        measured=measured_in(run_folder) if run_folder else {},
        step_model=step_model,
    )
    reporter = Reporter()
    try:
        found = api.plan(request, progress=reporter)
    finally:
        reporter.close()
    if out:
        api.save(found, out)
    click.echo(_answer(found, as_json=as_json, explain=explain, emit=emit), nl=False)
    raise click.exceptions.Exit(0 if found.feasible else 4)


def _loaded(model: str) -> str:
    """What an engine is told to load: the folder, when its config.json was named."""
    path = Path(model)
    return str(path.parent.resolve()) if path.name == "config.json" else model


def _check(
    record: Path, asked: placement.Asked, driver: str | None, host_file: Path | None, *, as_json: bool
) -> int:
    """Print whether the plan holds; 1 when it does not."""
    from dataclasses import replace

    from model_optimizer import api
    from model_optimizer.cli.render_plan import recheck_text
    from model_optimizer.core import Host, Plan, codec
    from model_optimizer.flow import plan as asking
    from model_optimizer.flow.recheck import recheck
    from model_optimizer.flow.relock import locked, packages, relock
    from model_optimizer.planner.decide import Wishes

    lock = locked(record)
    plan = lock.plan if lock is not None else codec.load(record, Plan)
    host = api.load_host(host_file) if host_file else Host() if asked.gpu_name else api.probe()
    measured = None
    if lock is not None:
        engine = api.room().engines[lock.engine]
        measured = relock(lock, host, lambda: packages(engine, None))
        if lock.gpu is None:  # nothing is planned for a machine without one
            click.echo(codec.dumps(measured) if as_json else recheck_text(measured), nl=False)
            return 0 if measured.holds else 1
    read = _read(plan)
    place = asking.PlanRequest(
        model=read, checkpoint=plan.checkpoint, gpu=asked.gpu_name, host=host, driver=driver,
        used_bytes=asked.reserve, wishes=Wishes(vram_bytes=asked.vram),
    )  # fmt: skip
    site, card = asking.here(place)
    found = recheck(plan, host, card, site, asking.functions(), read.spec)
    if measured is not None:
        found = replace(found, findings=(*measured.findings, *found.findings))
    click.echo(codec.dumps(found) if as_json else recheck_text(found), nl=False)
    return 0 if found.holds else 1


def _read(plan: "Plan") -> "ReadModel":
    """The model of a plan by its name, else by what the engine loads. UsageError when neither is known."""
    from model_optimizer import api

    try:
        return api.read_model(plan.model)
    except UsageError:
        return api.read_model(plan.checkpoint)


def _speculation(
    named: tuple[str, int, float | None] | None, drafter: str | None
) -> "SpeculationAsked | None":
    """UsageError for a drafting model without a method that has one, and the other way round."""
    from model_optimizer import api
    from model_optimizer.core.question import SpeculationAsked

    if named is None:
        if drafter:
            raise UsageError("--draft-model belongs to --speculative draft:TOKENS or eagle3:TOKENS")
        return None
    method, tokens, acceptance = named
    if bool(drafter) != (method in ("draft", "eagle3")):
        word = "takes no" if drafter else "needs a"
        raise UsageError(f"--speculative {method} {word} --draft-model")
    model = api.read_model(drafter).spec if drafter and method == "draft" else None
    return SpeculationAsked(method=method, tokens=tokens, acceptance=acceptance, model=model)  # pyright: ignore[reportArgumentType]


def _prices(text: str | None) -> "Prices | None":
    from model_optimizer.facts import prices

    if text is None:
        return None
    return prices.example() if text == "example" else prices.load(Path(text))


def _answer(
    found: "Plan",
    *,
    as_json: bool,
    explain: bool,
    emit: str | None,
) -> str:
    if as_json:
        from model_optimizer.core import codec

        return codec.dumps(found)
    from model_optimizer.cli import render_plan

    if not found.feasible:
        return render_plan.infeasible_text(found, explain=explain)
    if emit:
        from model_optimizer.flow.plan import emitted

        env = None if emit in ("docker", "ollama") else found.env
        fleet = render_plan.fleet_text(found)
        return render_plan.shell_text(emitted(found, emit), found.prepare, env, remark=fleet)
    return render_plan.plan_text(found, explain=explain)

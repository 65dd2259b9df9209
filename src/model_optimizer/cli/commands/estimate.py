"""`mopt estimate`: how fast will it be under a load, how sure is that, and what limits it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_optimizer.cli import options, placement
from model_optimizer.core import Lengths, UsageError

if TYPE_CHECKING:
    from model_optimizer.core import FitQuestion, ModelSpec, ReadModel, Workload
    from model_optimizer.core.question import SpeculationAsked

GROUP = "understand"

PROMPT, OUTPUT = 512, 128
MOST_DRAFTED = 64


class Speculative(click.ParamType[Any]):
    """`ngram:4`, `eagle3:3:0.7`: method, tokens a step, acceptance of a token."""

    name = "METHOD:TOKENS[:ACCEPTANCE]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, float | None]:
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        method, _, rest = str(value).partition(":")
        count, _, share = rest.partition(":")
        try:
            tokens, acceptance = int(count), float(share) if share else None
        except ValueError:
            tokens, acceptance = 0, None
        known = ("ngram", "draft", "eagle3", "mtp")
        if (
            method not in known
            or not 1 <= tokens <= MOST_DRAFTED
            or (acceptance is not None and not 0 <= acceptance <= 1)
        ):
            raise UsageError(
                f"`--speculative {value}` is not understood",
                hint=(
                    f"write METHOD:TOKENS[:ACCEPTANCE] with one of {', '.join(known)}: ngram:4, eagle3:3:0.7",
                ),
            )
        return method, tokens, acceptance


@click.command(short_help="How fast will it be under a load, and what limits it?")
@click.argument("model")
@placement.gpu
@placement.parallel
@click.option("--expert-parallel", is_flag=True, help="Experts are divided by number, not each one.")
@placement.engine
@options.load
@click.option(
    "--arrivals", type=click.Choice(["poisson", "constant", "gamma"]), help="With --qps.  [default: poisson]"
)
@click.option("--burstiness", type=options.PositiveFloat(), help="Of gamma arrivals; below 1 clusters.")
@click.option("--gpu-layers", "-ngl", type=options.Whole(0), help="Layers of llama.cpp on the GPU.")
@placement.images
@click.option("--shared-prefix", type=options.Whole(0), default=0, help="Prompt tokens that all share.")
@click.option(
    "--prefix-hit", type=float, default=0.0, help="Share of prompt tokens in the prefix cache, 0 to 1."
)
@click.option(
    "--speculative", type=Speculative(), help="Drafted tokens: ngram:4, draft:4:0.6, eagle3:3, mtp:1."
)
@click.option("--draft-model", metavar="MODEL", help="What drafts, for --speculative draft.")
@click.option(
    "--step-model",
    type=click.Choice(["auto", "roofline", "tables", "measured"]),
    default="auto",
    show_default=True,
    help="Where the time of a step comes from.",
)
@options.host_file
@options.as_json
def COMMAND(model: str, host_file: Path | None, as_json: bool, step_model: str, **given: Any) -> None:
    """Estimate time to first token, time per output token and throughput of MODEL under a load.

    The load is --concurrency (a closed loop), --qps (an open one) or `--qps inf --requests N` (a burst).
    MODEL is a hub id, a folder, a config.json or a .gguf file (for llama.cpp). What is left out takes the
    default of the engine's version, and the answer says so.
    """
    from model_optimizer import api
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import codec
    from model_optimizer.core.question import EstimateQuestion

    read = api.read_model(model)
    question = EstimateQuestion(
        placed=_placed(read, host_file, given),
        workload=_workload(read.spec, given),
        step_model=step_model,  # pyright: ignore[reportArgumentType]
        expert_parallel=given["expert_parallel"],
        prefix_hit=given["prefix_hit"],
        speculation=_speculation(given),
        images=given["images"],
        image_size=given["image_size"],
    )
    reporter = Reporter()
    try:
        answer = api.estimate(question, progress=reporter)
    finally:
        reporter.close()
    if as_json:
        click.echo(codec.dumps(answer), nl=False)
    else:
        from model_optimizer.cli.render_estimate import estimate_text

        click.echo(estimate_text(answer, question), nl=False)


def _placed(read: "ReadModel", host_file: Path | None, given: dict[str, Any]) -> "FitQuestion":
    from model_optimizer import api
    from model_optimizer.core import FitQuestion
    from model_optimizer.planner.memory import card

    spec = read.spec
    utilization, vram = given["gpu_memory_utilization"], given["vram"]
    if utilization is not None and vram is not None:
        raise UsageError(
            "--vram and --gpu-memory-utilization both set the budget", hint=("leave one of them out",)
        )
    if utilization is not None and utilization > 1:
        raise UsageError(f"--gpu-memory-utilization is a share up to 1, not {utilization:g}")
    divided = placement.divide(given["gpus"], given["tp"], given["pp"], given["dp"])
    usual = "llama.cpp" if read.gguf else "tensorrt" if spec.task == "vision" else "vllm"
    name, version = given["engine"] or (usual, None)
    memory = api.gpu_memory(
        placement.gpu_name(given["gpu"], given["gpus"]),
        engine=name,
        host=api.load_host(host_file) if host_file else None,
        used_bytes=given["reserve"],
    )
    if vram is not None and vram > memory.total_bytes:
        have = f"it has {memory.total_bytes / 2**30:.2f} GiB"
        raise UsageError(f"--vram is more than the memory of {memory.name}", cause=(have,))
    memory, vram = card.instance(memory, vram)
    return FitQuestion(
        model=spec,
        gguf=read.gguf,
        gpu_layers=given["gpu_layers"],
        gpu=memory,
        engine=name,
        version=version,
        scheme=api.scheme(given["scheme"]) if given["scheme"] else None,
        dtype=None if given["dtype"] == "auto" else given["dtype"],
        kv_cache_dtype=given["kv_cache_dtype"],
        tensor_parallel=divided.tensor,
        pipeline_parallel=divided.pipeline,
        data_parallel=divided.data,
        max_model_len=given["max_model_len"],
        max_num_seqs=given["max_num_seqs"],
        max_num_batched_tokens=given["max_num_batched_tokens"],
        gpu_memory_utilization=utilization,
        block_size=given["block_size"],
        enforce_eager=given["enforce_eager"],
        vram_bytes=vram,
        env=given["env"],
    )


def _workload(spec: "ModelSpec", given: dict[str, Any]) -> "Workload":
    from model_optimizer.core import Workload

    qps, concurrency, requests = given["qps"], given["concurrency"], given["requests"]
    if qps is not None and concurrency is not None:
        raise UsageError(
            "--qps and --concurrency exclude each other",
            cause=("a closed loop waits for answers, an open one does not",),
            hint=("give one of them",),
        )
    burst = qps is not None and math.isinf(qps)
    if burst and requests is None:
        raise UsageError("a burst needs a number of requests", hint=("`--qps inf --requests 1000`",))
    if given["burstiness"] is not None and given["arrivals"] != "gamma":
        raise UsageError("--burstiness belongs to --arrivals gamma")
    if given["arrivals"] and (qps is None or burst):
        raise UsageError("--arrivals belongs to an open loop", hint=("give --qps with a number",))
    arrivals = "burst" if burst else (given["arrivals"] or "poisson") if qps is not None else "closed"
    return Workload(
        task=spec.task,
        arrivals=arrivals,
        qps=None if burst else qps,
        burstiness=given["burstiness"] or 1.0,
        concurrency=concurrency,
        requests=requests,
        prompt_tokens=given["prompt_tokens"] or Lengths.fixed(_prompt(spec)),
        output_tokens=given["output_tokens"] or Lengths.fixed(OUTPUT),
        shared_prefix=given["shared_prefix"],
    )


def _prompt(spec: "ModelSpec") -> int:
    """An image is as many tokens as the model has places; a text is of a usual length."""
    most = spec.max_position or PROMPT
    return most if spec.task == "vision" else min(PROMPT, most) if spec.task != "generate" else PROMPT


def _speculation(given: dict[str, Any]) -> "SpeculationAsked | None":
    from model_optimizer import api
    from model_optimizer.core.question import SpeculationAsked

    named, drafter = given["speculative"], given["draft_model"]
    if named is None:
        if drafter:
            raise UsageError("--draft-model belongs to --speculative draft:TOKENS")
        return None
    method, tokens, acceptance = named
    if drafter and method != "draft":
        raise UsageError(f"`{method}` needs no --draft-model", hint=("write --speculative draft:4",))
    return SpeculationAsked(
        method=method,
        tokens=tokens,
        acceptance=acceptance,
        model=api.read_model(drafter).spec if drafter else None,
    )

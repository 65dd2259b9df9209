"""`mopt fit`: does it fit, term by term, and what the engine will say about its KV cache."""

from pathlib import Path

import click

from model_optimizer.cli import options, placement

GROUP = "understand"


@click.command(short_help="Does it fit, and how many tokens of KV cache will there be?")
@click.argument("model")
@placement.asked
@click.option("--expert-parallel", is_flag=True, help="Whole experts are spread over all GPUs.")
@click.option("--max-loras", type=placement.POSITIVE, help="Adapters at once.")
@click.option("--max-lora-rank", type=placement.POSITIVE, help="Largest rank of an adapter.")
@click.option("--draft-model", metavar="MODEL", help="A model that drafts tokens for this one.")
@click.option(
    "--kv-cache-memory-bytes", type=options.BytesType(), help="KV cache of each GPU, given outright."
)
@click.option("--kv-offload", type=options.BytesType(), default=0, help="Host memory for KV cache.")
@click.option("--gpu-layers", "-ngl", type=options.Whole(0), help="Layers of llama.cpp on the GPU.")
@click.option("--warm", is_flag=True, help="The engine finds its compiled graphs in its cache.")
@options.host_file
@options.as_json
def COMMAND(
    model: str,
    asked: placement.Asked,
    expert_parallel: bool,
    max_loras: int | None,
    max_lora_rank: int | None,
    draft_model: str | None,
    kv_cache_memory_bytes: int | None,
    kv_offload: int,
    gpu_layers: int | None,
    warm: bool,
    host_file: Path | None,
    as_json: bool,
) -> None:
    """Work out the memory of one engine process on a GPU for MODEL, as the engine accounts for it.

    MODEL is a hub id, a folder, a config.json or a .gguf file. What is left out takes the default of the
    engine's version, and the answer says so. Exits with 1 when it does not fit.
    """
    from model_optimizer import api
    from model_optimizer.core import FitQuestion, Lora, codec

    divided = placement.divide(asked.gpus, asked.tp, asked.pp, asked.dp)
    read = api.read_model(model)
    name, version = asked.engine or (("llama.cpp" if read.gguf else "vllm"), None)
    memory = api.gpu_memory(
        asked.gpu_name,
        engine=name,
        host=api.load_host(host_file) if host_file else None,
        used_bytes=asked.reserve,
    )
    gpu, budget = placement.within(memory, asked)
    lora = Lora(slots=max_loras or 1, rank=max_lora_rank or 16) if max_loras or max_lora_rank else None
    answer = api.fit(
        FitQuestion(
            model=read.spec,
            gguf=read.gguf,
            gpu=gpu,
            engine=name,
            version=version,
            scheme=api.scheme(asked.scheme) if asked.scheme else None,
            dtype=asked.dtype,
            kv_cache_dtype=asked.kv_cache_dtype,
            tensor_parallel=divided.tensor,
            pipeline_parallel=divided.pipeline,
            data_parallel=divided.data,
            expert_parallel=expert_parallel,
            max_model_len=asked.max_model_len,
            max_num_seqs=asked.max_num_seqs,
            max_num_batched_tokens=asked.max_num_batched_tokens,
            gpu_memory_utilization=asked.gpu_memory_utilization,
            block_size=asked.block_size,
            kv_cache_memory_bytes=_given(kv_cache_memory_bytes, asked),
            enforce_eager=asked.enforce_eager,
            vram_bytes=budget,
            lora=lora,
            draft=api.read_model(draft_model).spec if draft_model else None,
            offload_bytes=kv_offload,
            gpu_layers=gpu_layers,
            warm=warm,
            env=asked.env,
        )
    )
    if as_json:
        click.echo(codec.dumps(answer), nl=False)
    else:
        from model_optimizer.cli.render_fit import fit_text

        click.echo(fit_text(answer), nl=False)
    raise click.exceptions.Exit(0 if answer.fits else 1)


def _given(kv_bytes: int | None, asked: placement.Asked) -> int | None:
    """A KV cache given outright. UsageError beside a budget, which would work it out, or of no size."""
    from model_optimizer.core import UsageError

    if kv_bytes is None:
        return None
    if asked.vram is not None:
        raise UsageError(
            "--vram and --kv-cache-memory-bytes both set the KV cache", hint=("leave one of them out",)
        )
    if asked.engine is not None and asked.engine[0] != "vllm":
        raise UsageError(f"--kv-cache-memory-bytes is an option of vLLM, not of {asked.engine[0]}")
    if kv_bytes == 0:
        raise UsageError("--kv-cache-memory-bytes must be above zero", hint=("for example 20GiB",))
    return kv_bytes

"""A plan as the question that `fit` and `estimate` answer."""

from collections.abc import Callable

from model_optimizer.core import FitQuestion, GpuMemory, ModelSpec, Plan, Scheme

PLAIN = ("bf16", "fp16", "fp32")


def placed(
    plan: Plan, model: ModelSpec, gpu: GpuMemory, scheme: Callable[[str], Scheme | None]
) -> FitQuestion:
    """What the plan says nothing of takes the release's default. `scheme` gives a number format by its name;
    it is asked only for one that is neither plain nor that of the checkpoint.
    """

    def number(name: str) -> int | None:
        value = plan.setting(name)
        return int(value) if value is not None else None

    share = plan.setting("gpu-memory-utilization")
    stored = model.quantization.scheme if model.quantization else None
    return FitQuestion(
        model=model,
        gpu=gpu,
        engine=plan.engine,
        version=plan.engine_version,
        scheme=None if plan.scheme in (*PLAIN, stored) else scheme(plan.scheme),
        dtype=plan.scheme if plan.scheme in PLAIN else None,  # pyright: ignore[reportArgumentType]
        kv_cache_dtype=plan.setting("kv-cache-dtype") or "auto",
        tensor_parallel=plan.tensor_parallel,
        pipeline_parallel=plan.pipeline_parallel,
        data_parallel=plan.data_parallel,
        expert_parallel=plan.expert_parallel > 1,
        gpu_memory_utilization=float(share) if share else None,
        kv_cache_memory_bytes=number("kv-cache-memory-bytes"),
        enforce_eager=plan.setting("enforce-eager") == "1",
        env=plan.env,
        max_model_len=number("max-model-len"),
        max_num_seqs=number("max-num-seqs"),
        max_num_batched_tokens=number("max-num-batched-tokens"),
        block_size=number("block-size"),
    )

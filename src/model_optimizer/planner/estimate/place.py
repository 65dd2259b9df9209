"""The deployment that speed and service are asked about: memory, setup, limits."""

from dataclasses import replace

from model_optimizer.core import Fit, FitQuestion, NoFeasiblePlan, Scheme, Setting, UsageError
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.facts import gpus, speed, vllm
from model_optimizer.planner.memory.cache import held
from model_optimizer.planner.service import Limits
from model_optimizer.planner.speed import Setup

from .check import longest
from .desk import Desk

# Engines that run encoders, not text generation, and the batch that servers before them make by default here.
ENCODER_ENGINES = frozenset({"tensorrt", "tensorrt_rtx", "onnxruntime"})
BATCH = 32
# A context that is shorter is no help to anyone.
LEAST = 64


def fitted_for(question: EstimateQuestion, desk: Desk) -> Fit:
    """The memory of one replica. NoFeasiblePlan when it would not start even for these lengths."""
    placed = question.placed
    if placed.engine in ENCODER_ENGINES:
        return _encoder(question)
    asked = placed if placed.engine == "vllm" else replace(placed, engine="vllm", version=None)
    fitted = desk.fit(asked)
    if fitted.fits or placed.model.task != "generate":
        return _required(fitted)
    wanted = longest(question.workload.prompt_tokens) + longest(question.workload.output_tokens)
    most = fitted.largest_max_model_len or 0
    if placed.max_model_len is None and most >= wanted:
        desk.notes.append(
            f"with its default --max-model-len {fitted.max_model_len:,} it does not start "
            f"({fitted.because}); taken: {most:,}, the longest that does"
        )
        return _required(_chosen(desk.fit(replace(asked, max_model_len=most))))
    return _required(fitted)


def _chosen(fitted: Fit) -> Fit:
    """Nobody asked for the length that was taken."""
    settings = tuple(
        replace(s, because="the longest that starts", source="derived") if s.name == "max-model-len" else s
        for s in fitted.settings
    )
    return replace(fitted, settings=settings)


def _encoder(question: EstimateQuestion) -> Fit:
    """Engines that run encoders in batches: their memory is not modelled, and small beside the card."""
    placed = question.placed
    if placed.model.task == "generate":
        raise UsageError(
            f"{placed.engine} does not serve models that generate text here",
            hint=("take vllm, sglang or tensorrt_llm",),
        )
    batch = placed.max_num_seqs or BATCH
    tokens = placed.max_num_batched_tokens or batch * longest(question.workload.prompt_tokens)
    because, source = ("asked for", "user") if placed.max_num_seqs else ("a usual batch limit", "assumed")
    return Fit(
        fits=True,
        binding="",
        because="not worked out",
        weights_bytes=0,
        activation_bytes=0,
        cuda_graph_bytes=0,
        non_torch_bytes=0,
        kv_cache_bytes=0,
        kv_bytes_per_token=0,
        kv_cache_tokens=0,
        max_concurrency=0.0,
        largest_max_model_len=None,
        terms=(),
        model=placed.model.name,
        gpu=placed.gpu.name,
        engine=placed.engine,
        engine_version=placed.version,
        scheme="fp16" if placed.model.dtype in (None, "fp32") else placed.model.dtype,
        total_bytes=placed.gpu.total_bytes,
        budget_bytes=placed.gpu.total_bytes,
        max_model_len=longest(question.workload.prompt_tokens),
        max_num_seqs=batch,
        settings=(
            Setting(name="max-num-seqs", value=str(batch), because=because, source=source),
            Setting(
                name="max-num-batched-tokens", value=str(tokens), because="the whole batch", source="derived"
            ),
        ),
    )


def _required(fitted: Fit) -> Fit:
    if fitted.fits:
        return fitted
    most = fitted.largest_max_model_len
    hints = [f"--max-model-len {most} would start"] if most and most >= LEAST else []
    raise NoFeasiblePlan(
        f"{fitted.model} in {fitted.scheme} does not start on {fitted.gpu}",
        cause=(fitted.because, *((fitted.error,) if fitted.error else ())),
        hint=(*hints, "`mopt fit` shows the memory term by term"),
    )


def setup_of(question: EstimateQuestion, desk: Desk, fitted: Fit) -> Setup:
    """What speed depends on. UsageError when the number format is not one of ours."""
    placed = question.placed
    version = placed.version
    if placed.engine == "vllm" and fitted.engine_version:
        version = vllm.release(fitted.engine_version).version
    return Setup(
        model=placed.model,
        gpu=gpus.part(gpus.find(placed.gpu.name), placed.gpu.share),
        scheme=placed.scheme or _own_scheme(placed, desk, fitted),
        engine=placed.engine,
        version=version,
        kv_bits=_kv_bits(placed),
        tensor_parallel=placed.tensor_parallel,
        pipeline_parallel=placed.pipeline_parallel,
        expert_parallel=question.expert_parallel,
        eager=placed.enforce_eager,
    )


def _own_scheme(placed: FitQuestion, desk: Desk, fitted: Fit) -> Scheme:
    """The format of the checkpoint; engines compute 32-bit checkpoints of language models in 16."""
    model = placed.model
    if model.quantization is not None:
        own = model.quantization.scheme
        if own is None:
            raise UsageError(
                f"the number format of `{model.name}` ({model.quantization.method}) is not known here",
                hint=("name the nearest with --scheme, for example fp8 or awq_int4",),
            )
        return desk.scheme(own)
    return desk.scheme(placed.dtype or (fitted.scheme if fitted.scheme in ("bf16", "fp16") else "bf16"))


def _kv_bits(placed: FitQuestion) -> int:
    if placed.kv_cache_dtype == "auto":
        own = placed.model.quantization
        return 8 if own and own.kv_bits == 8 else 16
    return 8 if placed.kv_cache_dtype.startswith(("fp8", "int8", "q8")) else 16


def at_length(question: EstimateQuestion, desk: Desk, fitted: Fit) -> Fit:
    """The same with requests as long as those of the load, where layers keep a window only: what the cache
    holds of a request then depends on its length."""
    placed, work = question.placed, question.workload
    if placed.model.task != "generate" or not any(group.window for group in placed.model.groups):
        return fitted
    asked = placed if placed.engine == "vllm" else replace(placed, engine="vllm", version=None)
    wanted = longest(work.prompt_tokens) + longest(work.output_tokens)
    return desk.fit(replace(asked, max_model_len=min(wanted, fitted.max_model_len)))


def limits_of(question: EstimateQuestion, setup: Setup, fitted: Fit, room: Fit | None = None) -> Limits:
    """What bounds the batch, from the memory's answer and the engine's defaults. `room` is the same memory
    for requests of the load's length, where that makes a difference."""
    said = {one.name: one.value for one in fitted.settings}
    engine = speed.engine(setup.engine)
    overhead = engine.at(setup.version)
    generates = setup.model.task == "generate"
    return Limits(
        max_num_seqs=int(said.get("max-num-seqs", fitted.max_num_seqs or 256)),
        max_num_batched_tokens=int(said.get("max-num-batched-tokens", 8192)),
        kv_cache_tokens=_room(question.placed, room or fitted, engine.free_memory_share)
        if generates
        else None,
        cached_tokens=_cached(question, int(said.get("block-size", 16))),
        chunked=any(group.kv_bytes_per_token_16 or group.state_bytes for group in setup.model.groups),
        whole_prompts=engine.whole_prompts(setup.version),
        mixed=overhead.mixed,
        ahead=overhead.overlap and generates,
        reserve=overhead.reserve if generates else 0.0,
        frontend_ms=overhead.frontend_ms,
        frontend_token_us=overhead.frontend_token_us,
        frontend_busy_ms=min(overhead.frontend_ms, speed.shared().frontend_busy_ms),
    )


def _room(placed: FitQuestion, fitted: Fit, share: float | None) -> int | None:
    """Tokens of KV cache: those of vLLM's rule, or `share` of what all else leaves of the card."""
    tokens = held(fitted, placed.model) or None
    own = placed.gpu_memory_utilization is not None or placed.vram_bytes is not None
    if tokens is None or share is None or own or fitted.kv_cache_bytes <= 0:
        return tokens
    taken = sum(term.bytes for term in fitted.terms if term.name != "KV cache")
    return int(tokens * share * (fitted.total_bytes - taken) / fitted.kv_cache_bytes)


def _cached(question: EstimateQuestion, block: int) -> int:
    """Tokens of each prompt that the prefix cache holds, in whole blocks."""
    if not _caches(question.placed):
        return 0
    work = question.workload
    hit = round(question.prefix_hit * work.prompt_tokens.mean)
    return max(work.shared_prefix, hit) // block * block


def _caches(placed: FitQuestion) -> bool:
    if placed.model.task != "generate":
        return False
    if placed.engine != "vllm" or placed.version is None:
        return True
    return vllm.release(placed.version).defaults.prefix_caching is not False

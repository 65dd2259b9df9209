"""What is asked of one start, with everything that was left out filled in by the engine's own rules."""

from dataclasses import dataclass, replace
from typing import Literal

from model_optimizer.core import FitQuestion, ModelSpec, Setting, UsageError
from model_optimizer.facts import memory, vllm
from model_optimizer.facts.versions import minor

Engine = Literal["V0", "V1"]
# Up to here engine V0 runs a whole prompt in one step; beyond, in chunks.
V0_WHOLE = 32768
# Without chunked prefill V0 never takes less than this a step.
V0_LEAST = 2048
KV_BYTES = "kv-cache-memory-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of one start. `settings` says for each where it is from."""

    engine: Engine
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    block_size: int
    settings: tuple[Setting, ...] = ()


def release_of(version: str) -> vllm.VllmRelease | None:
    """The row of a release; None for those older than every row."""
    return vllm.release(version) if minor(version) >= minor(vllm.versions()[0]) else None


def choose(
    question: FitQuestion, rules: memory.VllmMemory, version: str, release: vllm.VllmRelease | None
) -> Limits:
    """UsageError for numbers that contradict the model or each other."""
    if question.kv_cache_memory_bytes is not None:
        vllm.take(version, f"--{KV_BYTES}", otherwise="give --gpu-memory-utilization or --vram")
    engine = engine_of(question, rules)
    legacy = memory.legacy()
    length = max_model_len(question)
    tier = None
    if release is not None and engine == "V1":
        tier = release.batch_for(memory_bytes=question.gpu.total_bytes, gpu=question.gpu.name)
    seqs = question.max_num_seqs or (tier.max_num_seqs if tier else legacy.max_num_seqs)
    tokens = question.max_num_batched_tokens
    if tokens is None:
        tokens = (
            min(tier.max_num_batched_tokens, seqs * length)
            if tier
            else _v0_tokens(length, rules.v0_chunk_tokens)
        )
    if question.max_num_seqs is None:
        seqs = min(seqs, tokens)
    if question.max_num_seqs is not None and tokens < question.max_num_seqs:
        raise UsageError(
            f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {question.max_num_seqs}",
            cause=("every sequence takes at least one token of a step",),
            hint=(f"pass --max-num-seqs {tokens} or less",),
        )
    default = release.defaults.gpu_memory_utilization if release else legacy.gpu_memory_utilization
    block = release.defaults.block_size if release else legacy.block_size
    made = Limits(
        engine=engine,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        utilization=question.gpu_memory_utilization or default,
        block_size=question.block_size or block,
    )
    return replace(made, settings=_settings(question, made, _known(version, release)))


def engine_of(question: FitQuestion, rules: memory.VllmMemory) -> Engine:
    """V1 where it is the default on this GPU, unless the environment says otherwise."""
    if rules.engine == "V0":
        return "V0"
    if rules.v1_from is None:
        return "V1"
    if question.env.get("VLLM_USE_V1") == "0":
        return "V0"
    return "V1" if question.gpu.compute_capability >= rules.v1_from else "V0"


def max_model_len(question: FitQuestion) -> int:
    """What was asked for, at most the model's own limit; its limit when nothing was asked for."""
    limit, asked = length_limit(question.model), question.max_model_len
    if asked is None:
        if limit is None:
            raise UsageError(
                f"`{question.model.name}` does not say how long its context may be",
                hint=("pass --max-model-len",),
            )
        return limit
    if limit is not None and asked > limit:
        raise UsageError(
            f"--max-model-len {asked} is above the limit of `{question.model.name}`, {limit} tokens",
            cause=("the engine refuses lengths beyond the positions that the model was trained for",),
            hint=(f"pass --max-model-len {limit} or less", "YaRN must be set in config.json to go beyond"),
            reference="model-length",
        )
    return asked


def length_limit(spec: ModelSpec) -> int | None:
    """The longest context, stretched by YaRN and its like where config.json says so."""
    if spec.max_position is None:
        return None
    keys = spec.config or {}
    scaling = keys.get("rope_scaling") or keys.get("rope_parameters")
    if not isinstance(scaling, dict):
        return spec.max_position
    kind = scaling.get("rope_type") or scaling.get("type")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    factor = scaling.get("factor")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    before = scaling.get("original_max_position_embeddings")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if kind == "yarn" and isinstance(factor, (int, float)) and isinstance(before, int):
        return max(spec.max_position, round(before * factor))
    return spec.max_position


def _v0_tokens(length: int, chunk: int) -> int:
    """Engine V0 chunks long contexts only, so its largest step grows with the context until there."""
    return chunk if length > V0_WHOLE else max(length, V0_LEAST)


def _known(version: str, release: vllm.VllmRelease | None) -> str:
    """The release whose defaults are taken, in words: another than was asked for where that is unknown."""
    if release is None or minor(release.version) == minor(version):
        return version
    return f"{release.version}, the nearest that is known"


def _settings(question: FitQuestion, made: Limits, version: str) -> tuple[Setting, ...]:
    default = f"the default of vLLM {version}, engine {made.engine}, on {question.gpu.name}"
    model = f"the limit of `{question.model.name}`"

    def one(name: str, value: object, asked: object, because: str) -> Setting:
        if asked is not None:
            return Setting(name=name, value=str(value), because="asked for", source="user")
        return Setting(name=name, value=str(value), because=because, source="table")

    share = question.gpu_memory_utilization
    given = question.kv_cache_memory_bytes
    idle = f"; of no effect beside {KV_BYTES}, but so much must be free" if given is not None else ""
    return (
        one("max-model-len", made.max_model_len, question.max_model_len, model),
        one("max-num-seqs", made.max_num_seqs, question.max_num_seqs, default),
        one("max-num-batched-tokens", made.max_num_batched_tokens, question.max_num_batched_tokens, default),
        one("gpu-memory-utilization", made.utilization, share, default + idle),
        *([one(KV_BYTES, given, given, "")] if given is not None else []),
        one("block-size", made.block_size, question.block_size, default),
    )

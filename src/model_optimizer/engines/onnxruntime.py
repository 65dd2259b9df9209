"""ONNX Runtime on the CPU behind our own server: language models through onnxruntime-genai, embedding models
as plain graphs behind LitServe."""

from model_optimizer.core import Host, Launch, ModelSpec, Plan, Scheme, Setting, Term, UsageError, Workload

from . import _arithmetic as a
from . import _litserve

TITLE = "ONNX Runtime"
READS = {
    "onnx_genai": frozenset({"fp32", "int8_weight", "int4_rtn"}),
    "onnx": frozenset({"fp32", "fp16", "int8", "int8_weight", "int4_rtn"}),
}
"""The better one first: a language model is exported as a plain graph too, which nobody would serve."""
TASKS = frozenset({"generate", "embed", "rerank", "vision"})
FORMATS = {"generate": "onnx_genai", "embed": "onnx", "rerank": "onnx", "vision": "onnx"}
"""The format of each task: a plain graph has no KV cache, so nobody would want to be answered by one."""
DEVICES = frozenset({"cpu"})
ENVIRONMENT = "onnx"
BASELINE = False
BACKENDS = {"onnx_genai": "onnx_genai", "onnx": "onnx"}

KV_BITS = 32
HEAD_BITS = 8
EMBED_BATCH_TOKENS = 2048
"""Tokens of one batch of an embedding model, with padding. ASSUMED."""

TAKES = _litserve.TAKES
KEY = _litserve.KEY
PACKAGE = "onnxruntime"


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """Bytes of the server's processes under this workload."""
    runtime = a.process("onnxruntime", "generate" if work.task == "generate" else "embed")
    if work.task != "generate":
        tokens = a.batch_tokens(work, EMBED_BATCH_TOKENS)
        return (_embed_weights(model, scheme), _hidden(model, tokens), runtime)
    return (
        _generate_weights(model, scheme),
        a.kv_cache(model, work, KV_BITS, a.running(work)),
        _logits(model, a.batch_tokens(work, a.prefill_tokens(model))),
        runtime,
    )


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    common = (*a.threads(host), _spinning(), a.context(model, work), a.at_once(work))
    if work.task != "generate":
        tokens = Setting(
            name="max_batched_tokens",
            value=str(EMBED_BATCH_TOKENS),
            because="a batch larger than the caches gains nothing on a CPU",
            source="assumed",
        )
        return (*common, tokens, a.gather(work, "5"))
    tokens = Setting(
        name="max_batched_tokens",
        value=str(a.prefill_tokens(model)),
        because=(
            f"logits of every prompt token are computed, {model.vocab_size:,} numbers each; a longer prompt "
            "is read in pieces between the steps of others"
        ),
        source="derived",
    )
    return (*common, tokens, a.gather(work, "2"))


def launch(plan: Plan, port: int) -> Launch:
    """Our worker on 127.0.0.1. UsageError for a format that cannot do the plan's task."""
    task = plan.workload.task
    if FORMATS.get(task) != plan.format:
        raise UsageError(
            f"ONNX Runtime serves `{task}` from {FORMATS.get(task, 'no format')}, not from {plan.format}",
            hint=("make the artefact for this task with `mopt convert`",),
        )
    env = {"OMP_NUM_THREADS": plan.setting("threads") or "", "MALLOC_ARENA_MAX": "2"}
    return _litserve.launch(plan, port, BACKENDS[plan.format], {k: v for k, v in env.items() if v})


def _spinning() -> Setting:
    return Setting(
        name="allow_spinning",
        value="0",
        because=(
            "threads that spin while they wait take the core from the server and from all else: with other "
            "work on 2 cores a token took 31 ms spinning and 12 ms asleep"
        ),
        source="measured",
    )


def _generate_weights(model: ModelSpec, scheme: Scheme) -> Term:
    """Quantized, the output head has at least 8 bits, and is the table as well where the two are tied; a
    table of its own stays in 32 bits. In 32 bits the tied head is a packed copy of the table."""
    table, head = model.embedding_parameters, model.head_parameters
    resident = a.measured("onnxruntime", "generate").resident.get(scheme.name, 1.0)
    if scheme.weight_bits >= 16:
        copy = table if model.tied_embeddings else 0
        numbers = a.FLOAT_BYTES * (model.parameters + copy)
        because = f"{model.parameters:,} parameters x 4 bytes"
        because += f", and {copy:,} again for the tied head" if copy else ""
    else:
        group = scheme.group_size or model.hidden_size
        each, of_head = (max(bits, scheme.weight_bits) / 8 + a.SCALE_BYTES / group for bits in (0, HEAD_BITS))
        body, last = model.parameters - table - head, table if model.tied_embeddings else head
        alone = 0 if model.tied_embeddings else table
        numbers = round(each * body + of_head * last) + a.FLOAT_BYTES * alone
        because = f"{body:,} weights x {each:g} bytes with scales, {last:,} of the head x {of_head:g}"
        because += f", {alone:,} of the embedding table x 4" if alone else ""
    because += f"; {resident:g} bytes in memory for each (measured)" if resident != 1 else ""
    return Term(name="weights", bytes=round(numbers * resident), because=because, source="derived")


def _embed_weights(model: ModelSpec, scheme: Scheme) -> Term:
    table, rest = model.embedding_parameters, model.parameters - model.embedding_parameters
    if scheme.weight_bits >= 16:
        return a.float_weights(model, scheme)
    each = scheme.weight_bits / 8 + (a.SCALE_BYTES / scheme.group_size if scheme.group_size else 0)
    return Term(
        name="weights",
        bytes=round(each * rest) + a.FLOAT_BYTES * table,
        because=f"{rest:,} weights x {each:g} bytes, {table:,} of lookup tables x 4",
        source="derived",
    )


def _logits(model: ModelSpec, tokens: int) -> Term:
    each = 2 * a.FLOAT_BYTES * model.vocab_size + 3 * a.FLOAT_BYTES * model.intermediate_size
    return Term(
        name="activations",
        bytes=tokens * each,
        because=f"{tokens} prompt tokens a step: logits twice, three rows of the MLP",
        source="derived",
    )


def _hidden(model: ModelSpec, tokens: int) -> Term:
    width = 8 * model.hidden_size + 2 * model.intermediate_size
    return Term(
        name="activations",
        bytes=a.FLOAT_BYTES * tokens * width,
        because=f"{tokens} tokens a batch x {width} numbers of one layer",
        source="derived",
    )

"""From an account to an answer: does it start, what binds, and what the engine will print."""

from dataclasses import replace
from math import ceil, floor

from model_optimizer.core import Fit, FitQuestion, Term
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import memory
from model_optimizer.facts import vllm as facts
from model_optimizer.facts.versions import minor

from . import vllm
from .supported import BF16_FROM

GIB = 2**30


def conclude(
    question: FitQuestion,
    account: "vllm.Account",
    *,
    version: str,
    rules: memory.VllmMemory,
    longest: int | None,
    known: bool,
) -> Fit:
    """The noun that `mopt fit` prints."""
    gpu, limits = question.gpu, account.limits
    binding, because, error = _judge(question, account, rules)
    if binding in ("free_memory", "cuda_graphs", "weights") and error:
        longest = None
    room = max(0, account.available)
    blocks = account.blocks
    caches = bool(account.layout.groups)
    tokens = account.layout.tokens(blocks, limits.max_model_len) if caches else 0
    concurrency = account.layout.concurrency(blocks, limits.max_model_len) if caches else 0.0
    per_token = sum(kind.layers * kind.bytes_per_token for kind in account.kinds)
    terms = _terms(question, account, room if caches else 0, per_token)
    if not known:
        terms = tuple(_marked(term, version) for term in terms)
    # Host memory is of the engine: its workers share it.
    offloaded = question.offload_bytes // (per_token * question.tensor_parallel) if per_token else 0
    return Fit(
        fits=error is None,
        binding=binding,
        because=because,
        weights_bytes=account.weights,
        activation_bytes=account.peak.bytes,
        cuda_graph_bytes=account.graphs.bytes,
        non_torch_bytes=sum(term.bytes for term in account.non_torch),
        kv_cache_bytes=room if caches else 0,
        kv_bytes_per_token=per_token,
        kv_cache_tokens=tokens,
        max_concurrency=round(concurrency, 2),
        largest_max_model_len=longest,
        terms=terms,
        error=error,
        engine_lines=_lines(question, account, tokens, concurrency) if error is None and caches else (),
        model=question.model.name,
        gpu=gpu.name,
        gpus=question.tensor_parallel * question.pipeline_parallel * question.data_parallel,
        engine="vllm",
        engine_version=version,
        version_known=known,
        scheme=_scheme_word(question),
        total_bytes=gpu.total_bytes,
        budget_bytes=account.requested,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        cuda_graphs_counted=account.graphs_counted,
        host_kv_bytes=question.offload_bytes,
        host_kv_tokens=offloaded,
        settings=limits.settings,
        notes=_notes(question, account, version, rules, known),
    )


def _judge(
    question: FitQuestion, account: "vllm.Account", rules: memory.VllmMemory
) -> tuple[str, str, str | None]:
    """(binding term, why in one sentence, the engine's own words when it will not start)."""
    gpu, limits = question.gpu, account.limits
    texts = rules.v0_texts if limits.engine == "V0" and rules.v0_texts else rules.texts
    free = gpu.total_bytes - gpu.used_bytes - account.before
    share = ceil(gpu.total_bytes * limits.utilization)
    if texts.not_free and free < share:
        text = texts.not_free.format(
            device="cuda:0 " if minor(rules.since) >= (0, 14) else "",
            free=_gib(free), total=_gib(gpu.total_bytes), utilization=limits.utilization,
            requested=_gib(share),
        )  # fmt: skip
        return (
            "free_memory",
            f"{show_bytes(free)} are free at the start, and {show_bytes(share)} are asked for; "
            f"--gpu-memory-utilization {_share(free, gpu.total_bytes)} is the most that starts",
            text,
        )
    if account.weights > gpu.total_bytes - gpu.used_bytes - account.before:
        return (
            "weights",
            f"weights of {show_bytes(account.weights)} on a card of {show_bytes(gpu.total_bytes)}",
            "torch.OutOfMemoryError: CUDA out of memory",
        )
    if account.available <= 0:
        short = show_bytes(-account.available)
        name = "weights" if account.weights >= account.requested else "activation"
        return name, f"{short} are missing before the KV cache gets anything", texts.no_memory
    if not account.layout.groups:
        return "none", f"{show_bytes(account.available)} are left; this model keeps no KV cache", None
    if not vllm.starts(account):
        return _too_long(account, texts)
    over = account.on_top - (gpu.total_bytes - gpu.used_bytes - account.requested) - account.peak.bytes
    if over > 0:
        return (
            "cuda_graphs",
            _over_because(question, over),
            "torch.OutOfMemoryError: CUDA out of memory",
        )
    holds = account.layout.concurrency(account.blocks, limits.max_model_len)
    if holds < limits.max_num_seqs:
        return "kv_cache", f"the KV cache holds {holds:.2f} requests of {limits.max_model_len:,} tokens", None
    return "max_num_seqs", f"the KV cache holds more than {limits.max_num_seqs:,} longest requests", None


def _over_because(question: FitQuestion, over: int) -> str:
    if question.kv_cache_memory_bytes is not None:
        return (
            f"the start and a KV cache of the size that was given need {show_bytes(over)} more than there is"
        )
    return f"what comes on top of the budget is {show_bytes(over)} more than the card has left"


def _share(free: int, total: int) -> float:
    """The largest utilization that asks for no more than is free, to two places."""
    return floor(max(0, free) / total * 100) / 100


def _too_long(account: "vllm.Account", texts: memory.Texts) -> tuple[str, str, str | None]:
    length, layout = account.limits.max_model_len, account.layout
    tokens = layout.tokens(account.blocks, length)
    needed = layout.bytes_a_request(length)
    text = texts.too_long.format(
        max_model_len=length, tokens=tokens, needed=_gib(needed), available=_gib(account.available)
    )
    fitting = layout.largest_length(account.blocks, length)
    if texts.estimated and fitting:
        text += texts.estimated.format(estimated=fitting)
    because = (
        f"one request of {length:,} tokens needs {show_bytes(needed)} of KV cache, "
        f"{show_bytes(account.available)} are left"
    )
    return "kv_cache", because, text.strip()


def _terms(question: FitQuestion, account: "vllm.Account", room: int, per_token: int) -> tuple[Term, ...]:
    terms = [*account.loaded, account.peak, *account.non_torch]
    if account.graphs.bytes:
        terms.append(account.graphs)
    if account.buffers.bytes:
        counted = account.buffers_counted
        where = "" if counted else "; on top: not subtracted from the KV cache"
        terms.append(replace(account.buffers, because=account.buffers.because + where))
    if account.layout.groups:
        size = account.limits.block_size
        terms.append(
            Term(
                name="KV cache",
                bytes=room,
                because=(
                    f"{_where_from(question, account)} = {account.blocks:,} blocks of {size} tokens "
                    f"x {_per_token(account, per_token)}"
                ),
                source="derived" if question.kv_cache_memory_bytes is None else "user",
            )
        )
    return tuple(terms)


def _where_from(question: FitQuestion, account: "vllm.Account") -> str:
    if question.kv_cache_memory_bytes is not None:
        return f"{show_bytes(question.kv_cache_memory_bytes)} given"
    return f"{show_bytes(account.requested)} budget - {show_bytes(account.taken)}"


def _per_token(account: "vllm.Account", per_token: int) -> str:
    parts = [
        f"{kind.layers} layers x {kind.bytes_per_token:,} B"
        + (f" (window {kind.window})" if kind.window else "")
        for kind in account.kinds
        if kind.bytes_per_token
    ]
    states = [
        f"{k.layers} layers x {show_bytes(k.state_bytes)} a request" for k in account.kinds if k.state_bytes
    ]
    return " + ".join(parts + states) or f"{per_token:,} B"


def _lines(
    question: FitQuestion, account: "vllm.Account", tokens: int, concurrency: float
) -> tuple[str, ...]:
    length = account.limits.max_model_len
    if account.limits.engine == "V0":
        return (
            f"# GPU blocks: {account.blocks}",
            f"Maximum concurrency for {length} tokens per request: {concurrency:.2f}x",
        )
    first = f"Available KV cache memory: {_gib(account.available)} GiB"
    return (
        *([first] if question.kv_cache_memory_bytes is None else []),
        f"GPU KV cache size: {tokens:,} tokens",
        f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x",
    )


def _notes(
    question: FitQuestion, account: "vllm.Account", version: str, rules: memory.VllmMemory, known: bool
) -> tuple[str, ...]:
    notes = list(account.notes)
    if not known and not rules.checked:
        notes.append(
            f"no release as old as vLLM {version} was read: its rules are from a few published logs, so "
            "every number is marked assumed"
        )
    elif not known:
        notes.append(
            f"vLLM {version} is not in the facts: defaults are those of {facts.release(version).version}, "
            "the nearest release that is, so every number is marked assumed"
        )
    notes.append(
        f"engine {account.limits.engine}, model runner {account.runner}, accounting since {rules.since}"
    )
    if account.runner == "V1" and rules.sampler == "flashinfer" and minor(version) == (0, 10):
        notes.append(
            "the sampler is FlashInfer's, as in vLLM's image; without it add VLLM_USE_FLASHINFER_SAMPLER=0"
        )
    if _sorts(question, account, rules):
        notes.append(
            f"the sampler sorts all logits; FlashInfer's holds {vllm.FLASHINFER_BYTES_PER_LOGIT} instead of "
            f"{rules.bytes_per_logit} B a logit: before 0.11.1 it is taken wherever it is installed (vLLM's "
            "image), later when asked for; add --env VLLM_USE_FLASHINFER_SAMPLER=1"
        )
    if question.expert_parallel and question.model.experts:
        notes.append("whole experts are spread over the GPUs; their buffers were not measured with it")
    if question.data_parallel > 1:
        notes.append(f"tokens and concurrency are of one of {question.data_parallel} engines side by side")
    if question.model.mtp_parameters and not question.mtp:
        notes.append("layers for predicting further tokens are not loaded")
    if question.model.vision_parameters != 0 and not (question.model.config or {}).get("vision_config"):
        notes.append(
            "the encoder of images is not described by this config.json: neither it nor its run count"
        )
    elif question.model.vision_parameters != 0 and account.runner not in (*rules.profiles_encoder, "V0"):
        notes.append("this runner does not profile the encoder of images, whose run comes on top")
    if question.gpu.because:
        notes.append(f"{question.gpu.name}: {show_bytes(question.gpu.total_bytes)}, {question.gpu.because}")
    return tuple(notes)


def _sorts(question: FitQuestion, account: "vllm.Account", rules: memory.VllmMemory) -> bool:
    """Whether the peak is that of a sampler that sorts, and nobody has said which sampler there is."""
    widest = account.runner == "V1" and account.peak.name.endswith("sampler")
    return widest and rules.sampler == "sort" and "VLLM_USE_FLASHINFER_SAMPLER" not in question.env


def _marked(term: Term, version: str) -> Term:
    return replace(
        term, source="assumed", because=f"{term.because} (rules of another release than {version})"
    )


def _scheme_word(question: FitQuestion) -> str:
    if question.scheme:
        return question.scheme.name
    found = question.model.quantization
    if found:
        return found.scheme or found.method
    if question.dtype:
        return question.dtype
    own = question.model.dtype
    if question.gpu.compute_capability < BF16_FROM:
        return "fp16"
    return own if own in ("bf16", "fp16") else "bf16"


def _gib(count: int) -> str:
    return f"{count / GIB:.2f}".rstrip("0").rstrip(".") if count >= 0 else f"{count / GIB:.2f}"

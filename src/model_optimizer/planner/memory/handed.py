"""Engines that work out their own memory: their terms beside the room there is."""

from collections.abc import Callable

from model_optimizer.core import Fit, FitQuestion, Lengths, ModelSpec, Scheme, Term, Workload
from model_optimizer.core.units import show_bytes

from .limits import length_limit

Memory = Callable[[ModelSpec, Scheme, Workload], tuple[Term, ...]]
DEFAULT_LENGTH = 4096


def fit(question: FitQuestion, scheme: Scheme, memory: Memory) -> Fit:
    """`question.gpu` is the memory that the engine works in, that of the host where it runs on a CPU."""
    spec = question.model
    limit = length_limit(spec) or DEFAULT_LENGTH
    length, seqs = question.max_model_len or min(limit, DEFAULT_LENGTH), question.max_num_seqs or 1
    room = min(question.vram_bytes or question.gpu.total_bytes, question.gpu.total_bytes)
    room -= question.gpu.used_bytes
    answer = 1 if spec.task == "generate" else 0

    def terms_of(tokens: int) -> tuple[Term, ...]:
        work = Workload(
            task=spec.task,
            concurrency=seqs,
            prompt_tokens=Lengths.fixed(max(1, tokens - answer)),
            output_tokens=Lengths.fixed(1),
        )
        return memory(spec, scheme, work)

    def total(tokens: int) -> int:
        return sum(term.bytes for term in terms_of(tokens))

    terms, taken = terms_of(length), total(length)
    cache = _of(terms, "KV")
    loaded = _of(terms, "weights")
    return Fit(
        fits=taken <= room,
        binding="weights" if loaded > room else "kv_cache" if taken > room and cache else "memory",
        because=f"{show_bytes(taken)} of {show_bytes(room)}",
        weights_bytes=loaded,
        activation_bytes=_of(terms, "activations"),
        cuda_graph_bytes=0,
        non_torch_bytes=taken - loaded - cache - _of(terms, "activations"),
        kv_cache_bytes=cache,
        kv_bytes_per_token=round(cache / (length * seqs)) if cache else 0,
        kv_cache_tokens=length * seqs if cache else 0,
        max_concurrency=float(seqs),
        largest_max_model_len=_largest(limit, lambda tokens: total(tokens) <= room),
        terms=terms,
        model=spec.name,
        gpu=question.gpu.name,
        engine=question.engine,
        engine_version=question.version,
        scheme=scheme.name,
        total_bytes=question.gpu.total_bytes,
        budget_bytes=room,
        max_model_len=length,
        max_num_seqs=seqs,
        notes=(f"{length:,} tokens a request, {seqs} at once",),
    )


def _of(terms: tuple[Term, ...], name: str) -> int:
    return sum(term.bytes for term in terms if term.name.startswith(name))


def _largest(limit: int, fits: Callable[[int], bool]) -> int | None:
    if not fits(2):
        return None
    low, high = 2, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low

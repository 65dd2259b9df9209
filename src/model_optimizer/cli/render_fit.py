"""The screen of `mopt fit`: the answer, the terms with their reasons, what the engine will print."""

from model_optimizer.cli.render import printable
from model_optimizer.core import Fit, Term
from model_optimizer.core.units import show_bytes

# How the memory of an engine on the CPU is called where a GPU would have its name.
HOST = "host memory"
# Marks behind a number that is neither derived nor the user's own.
_MARKS = {"assumed": "assumed", "table": "table", "measured": "measured"}
# What helps when a term of vLLM breaks it, in this order.
_HELPS = {
    "weights": "fewer bits (--scheme), more GPUs (--tp), a larger card",
    "activation": "fewer --max-num-seqs or --max-num-batched-tokens",
    "kv_cache": "a shorter --max-model-len, --kv-cache-dtype fp8, fewer --max-num-seqs, more GPUs (--tp)",
    "free_memory": "a lower --gpu-memory-utilization, or ending what else holds the card",
    "cuda_graphs": "a lower --gpu-memory-utilization, fewer --max-num-seqs, at last --enforce-eager",
}


def fit_text(found: Fit) -> str:
    """Everything a person needs; `--json` has the same."""
    lines = [_answer(found), f"  {found.because}"]
    if found.error:
        lines += ["", "The engine will stop with:", f"  {found.error}"]
    if not found.fits and found.engine == "vllm" and found.binding in _HELPS:
        lines += ["", f"What helps: {_HELPS[found.binding]}; `mopt plan` finds what fits"]
    lines += ["", *_terms(found), "", *_tokens(found)]
    if found.engine_lines:
        lines += ["", "The engine will print:", *(f"  {line}" for line in found.engine_lines)]
    if found.settings:
        lines += ["", "Settings:", *(f"  {s.name} {s.value}: {s.because}" for s in found.settings)]
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _answer(found: Fit) -> str:
    engine = f"{found.engine} {found.engine_version}" if found.engine_version else found.engine
    where = f"{found.gpus} x {found.gpu}" if found.gpus > 1 else found.gpu
    verdict = "fits" if found.fits else "DOES NOT FIT"
    return f"{found.model} in {found.scheme} {verdict} on {where} with {engine} (limit: {found.binding})"


def _terms(found: Fit) -> list[str]:
    """A line for each term, aligned; the sources that are not arithmetic are marked."""
    of = "Memory of each GPU" if found.gpus > 1 else "Memory of the GPU"
    of = "Host memory" if found.gpu == HOST else of
    heading = f"{of}, {show_bytes(found.total_bytes)} in all, budget {show_bytes(found.budget_bytes)}:"
    width = max(len(term.name) for term in found.terms)
    return [heading, *(f"  {_line(term, width)}" for term in found.terms)]


def _line(term: Term, width: int) -> str:
    mark = f" [{_MARKS[term.source]}]" if term.source in _MARKS else ""
    return f"{term.name.ljust(width)}  {show_bytes(term.bytes).rjust(9)}  {term.because}{mark}"


def _tokens(found: Fit) -> list[str]:
    lines: list[str] = []
    if found.kv_cache_tokens or found.kv_bytes_per_token:
        lines.append(
            f"KV cache: {found.kv_cache_tokens:,} tokens, {show_bytes(found.kv_bytes_per_token)} each, "
            f"{found.max_concurrency:g} request{'s' * (found.max_concurrency != 1)} "
            f"of {found.max_model_len:,} tokens at once"
        )
    longest = found.largest_max_model_len
    lines.append(
        f"Longest context that would start: {longest:,} tokens"
        if longest
        else "No context length would start"
    )
    if found.host_kv_bytes:
        lines.append(
            f"In host memory: {found.host_kv_tokens:,} tokens of KV cache, {show_bytes(found.host_kv_bytes)}"
        )
    if found.host_bytes:
        lines.append(f"In host memory: {show_bytes(found.host_bytes)}")
    return lines

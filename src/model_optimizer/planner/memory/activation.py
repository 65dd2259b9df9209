"""The peak of the profiling run: one batch of as many tokens as a step may have, then the sampler.

Each part counts the tensors that are alive at once where that part is widest, as the engine's own code
holds them: hidden states, residual, the projections of one layer, the experts' buffers, the logits.
"""

from dataclasses import dataclass
from math import ceil

from model_optimizer.core import ModelSpec
from model_optimizer.core.units import show_bytes

from .split import Split, local_kv_heads, padded_vocabulary

# Models whose feed-forward layer drops the fused gate and up projection before the last product.
DROPS_GATE_UP = frozenset({"LlamaForCausalLM", "MistralForCausalLM"})
# Tokens that the fused experts work on at once.
EXPERT_CHUNK = 32 * 1024
# Tokens of earlier chunks that MLA expands at once: eight longest requests, at most this many.
LATENT_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The profiled step. `bytes_per_logit` is what sampling holds at once for each logit.

    `copies_rows`: the sampler works on a copy of the sampled rows. `workspace_bytes` is cuBLAS's.
    `activation_bits` are those of the scheme. `compiles`: torch.compile is on; `times_embedding`: and
    times a kernel on a random table as large as the embedding. `gathered` is the number of engines whose
    tokens meet at the experts.
    """

    tokens: int
    sequences: int
    max_model_len: int
    bytes_per_logit: int
    workspace_bytes: int
    element_bytes: int = 2
    activation_bits: int = 16
    copies_rows: bool = False
    compiles: bool = True
    times_embedding: bool = False
    samples: bool = True
    gathered: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One place where the peak may be."""

    name: str
    bytes: int
    because: str


def parts(spec: ModelSpec, split: Split, batch: Batch) -> tuple[Part, ...]:
    """Every place that may be the peak, largest first."""
    found = [_feed_forward(spec, split, batch), _attention(spec, split, batch)]
    if spec.experts:
        found.append(_experts(spec, split, batch))
    if any(group.kind == "mla" for group in spec.groups):
        found.append(_latent(spec, split, batch))
    if batch.samples:
        found.append(_sampler(spec, split, batch))
    if batch.compiles and batch.times_embedding:
        found.append(_timing(spec, split, batch))
    return tuple(sorted(found, key=lambda part: -part.bytes))


def _hidden(spec: ModelSpec, batch: Batch) -> int:
    return batch.tokens * spec.hidden_size * batch.element_bytes


def _feed_forward(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """Gate and up, their product, and the states around them."""
    width = ceil(spec.intermediate_size / split.tensor)
    gated = _is_gated(spec)
    pair = batch.tokens * width * batch.element_bytes * (2 if gated else 1)
    product = batch.tokens * width * batch.element_bytes
    packed = batch.tokens * width if batch.activation_bits == 8 else 0
    hidden = _hidden(spec, batch)
    if batch.compiles:
        heads = batch.tokens * ceil(spec.heads / split.tensor) * spec.head_dim * batch.element_bytes
        held, words = 3 * hidden + heads, "3 x hidden states, attention output"
        widest = pair + product
    elif spec.architecture in DROPS_GATE_UP:
        widest, held, words = pair + product, 3 * hidden, "3 x hidden states"
    else:
        widest, held, words = pair + product + packed, 4 * hidden, "4 x hidden states"
    what = "gate and up" if gated else "up"
    return Part(
        name="feed-forward",
        bytes=widest + held + batch.workspace_bytes,
        because=(
            f"{batch.tokens:,} tokens: {what} {show_bytes(pair)}, product {show_bytes(product)}"
            + (f", in 8 bits {show_bytes(packed)}" if packed and not batch.compiles else "")
            + f", {words} {show_bytes(held)}, cuBLAS {show_bytes(batch.workspace_bytes)}"
        ),
    )


def _is_gated(spec: ModelSpec) -> bool:
    names = [w.name for w in spec.weights if w.role in ("mlp", "expert", "shared_expert")]
    return not names or any("gate" in n for n in names) or any("w3" in n for n in names)


def _attention(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """Query, key and value, their normalized copies, the output and its projection."""
    row = batch.tokens * batch.element_bytes
    query = row * ceil(spec.heads / split.tensor) * spec.head_dim
    key = row * local_kv_heads(spec.kv_heads, split) * spec.head_dim
    normed = (query + key) if any("q_norm" in w.name for w in spec.weights) else 0
    fused, around = query + 2 * key, 3 * _hidden(spec, batch)
    total = fused + normed + query + around + batch.workspace_bytes
    return Part(
        name="attention",
        bytes=total,
        because=(
            f"{batch.tokens:,} tokens: query, key and value {show_bytes(fused)}"
            + (f", normalized {show_bytes(normed)}" if normed else "")
            + f", output {show_bytes(query)}, 3 x hidden states {show_bytes(around)}"
        ),
    )


def _experts(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """Both products of the fused experts for a chunk of tokens, and the states of the whole batch."""
    assert spec.experts is not None
    chunk = min(batch.tokens * batch.gathered, EXPERT_CHUNK) * spec.experts.active
    width = spec.experts.intermediate_size
    width = width if split.experts else ceil(width / split.tensor)
    first = chunk * max(2 * width, spec.hidden_size) * batch.element_bytes
    second = chunk * width * batch.element_bytes
    held = 4 * _hidden(spec, batch)
    return Part(
        name="experts",
        bytes=first + second + held + batch.workspace_bytes,
        because=(
            f"{chunk:,} token-expert pairs: first product {show_bytes(first)}, second {show_bytes(second)}, "
            f"4 x hidden states {show_bytes(held)}"
        ),
    )


def _latent(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """Keys and values of earlier chunks, expanded from the latent for all heads of the GPU."""
    keys = dict(spec.config or {})
    width = sum(v for n in ("qk_nope_head_dim", "v_head_dim") if isinstance(v := keys.get(n), int)) or 256
    rows = min(max(8 * batch.max_model_len, 4 * batch.sequences * 16), LATENT_CHUNK)
    heads = ceil(spec.heads / split.tensor)
    expanded = rows * heads * width * batch.element_bytes
    query = batch.tokens * heads * spec.head_dim * batch.element_bytes
    held = 3 * query + 3 * _hidden(spec, batch)
    return Part(
        name="latent attention",
        bytes=expanded + held + batch.workspace_bytes,
        because=(
            f"{rows:,} cached tokens x {heads} heads x {width} expanded {show_bytes(expanded)}, "
            f"query, key, output and 3 x hidden states {show_bytes(held)}"
        ),
    )


def _sampler(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """One row of logits for each sequence that a step may have, and all that sampling makes of it."""
    rows = min(batch.tokens, batch.sequences)
    logits = rows * spec.vocab_size * batch.bytes_per_logit
    part = (
        rows * ceil(padded_vocabulary(spec) / split.tensor) * batch.element_bytes if split.tensor > 1 else 0
    )
    states = _hidden(spec, batch)
    states += rows * spec.hidden_size * batch.element_bytes * (2 if batch.copies_rows else 1)
    return Part(
        name="sampler",
        bytes=logits + part + states + batch.workspace_bytes,
        because=(
            f"{rows:,} sequences x {spec.vocab_size:,} words x {batch.bytes_per_logit} B "
            f"= {show_bytes(logits)}, hidden states {show_bytes(states)}, "
            f"cuBLAS {show_bytes(batch.workspace_bytes)}"
        ),
    )


def _timing(spec: ModelSpec, split: Split, batch: Batch) -> Part:
    """The compiler times the first kernel on random tensors, the table of the embedding among them."""
    rows = ceil(padded_vocabulary(spec) / split.tensor)
    table = rows * spec.hidden_size * batch.element_bytes
    hidden = 2 * _hidden(spec, batch)
    packed = batch.tokens * spec.hidden_size if batch.activation_bits == 8 else 0
    return Part(
        name="compiler",
        bytes=table + hidden + packed,
        because=(
            f"the compiler times a kernel on a copy of the embedding, {rows:,} x {spec.hidden_size} x "
            f"{batch.element_bytes} B = {show_bytes(table)}, + outputs {show_bytes(hidden + packed)}"
        ),
    )

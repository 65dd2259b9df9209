"""Weights on one GPU, by role: packed as the scheme stores them, divided as parallelism divides them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import cast

from model_optimizer.core import Lora, ModelSpec, Term, Weight
from model_optimizer.core.units import show_bytes
from model_optimizer.facts.memory import Padding

from .split import Split, local_copies, local_elements, local_shape, padded_vocabulary
from .storage import Precision

_TITLES = {
    "embedding": "embedding", "head": "output head", "attention": "attention", "mlp": "feed-forward",
    "expert": "experts", "shared_expert": "shared experts", "router": "routers", "norm": "norms",
    "mixer": "Mamba and linear attention", "indexer": "sparse attention selector", "pooler": "pooler",
    "classifier": "classifier", "vision": "vision encoder",
}  # fmt: skip
_PLACES = ("position_embedding", "wpe", "embed_positions")
# Projections that vLLM holds as one tensor.
_FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
# PyTorch takes tensors above 10 MiB from CUDA in steps of 2 MiB, and leaves up to 1 MiB of a step unused.
_LARGE, _STEP, _UNSPLIT = 10 << 20, 2 << 20, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All weights of one GPU. `quantized` is the part that is stored in fewer bits."""

    terms: tuple[Term, ...]

    @property
    def bytes(self) -> int:
        return sum(term.bytes for term in self.terms)


@dataclass(slots=True)
class _Sum:
    bytes: int = 0
    elements: int = 0
    packed: int = 0
    side: int = 0


def load(spec: ModelSpec, split: Split, form: Precision, padding: Padding | None = None) -> Loaded:
    """A term for each role that has weights. Layers for further tokens are stored, but not loaded."""
    sums: dict[str, _Sum] = {}
    for weight in spec.weights:
        if weight.role == "mtp":
            continue
        _add(sums.setdefault(weight.role, _Sum()), weight, spec, split, form, padding)
    terms = [_term(role, found, form) for role, found in sums.items()]
    if spec.vision_parameters is None or (spec.vision_parameters and "vision" not in sums):
        terms.append(_unlisted_vision(spec, form))
    if not spec.weights:
        terms = [_whole(spec, split, form)]
    unused = rounding_bytes(spec, split, form)
    if unused >= 1 << 20:
        terms.append(
            Term(
                name="weights: rounding",
                bytes=unused,
                because="PyTorch gives large tensors whole steps of 2 MiB",
                source="derived",
            )
        )
    rotary = rotary_bytes(spec)
    if rotary:
        terms.append(
            Term(
                name="weights: rotary table",
                bytes=rotary,
                because=f"{spec.max_position} positions x {_rotary_width(spec)} x 2 B, once for all layers",
                source="derived",
            )
        )
    return Loaded(terms=tuple(terms))


def _add(
    total: _Sum, weight: Weight, spec: ModelSpec, split: Split, form: Precision, padding: Padding | None
) -> None:
    shape, copies = local_shape(weight, spec, split), local_copies(weight, spec, split)
    if form.storage is None or not form.quantizes(weight):
        total.bytes += prod(shape) * copies * form.plain_bytes
        total.elements += prod(shape) * copies
        return
    if padding is not None and weight.role == "expert":
        shape = _padded(weight, shape, padding)
    *lead, out, into = shape
    matrices = prod(lead) * copies if lead else copies
    side = form.storage.side_bytes(out, into) * matrices
    total.side += side
    total.bytes += ceil(out * into * matrices * form.storage.bits / 8) + side
    total.elements += out * into * matrices
    total.packed += out * into * matrices


def rounding_bytes(spec: ModelSpec, split: Split, form: Precision) -> int:
    """What the allocator adds to tensors that are no multiple of its step."""
    sizes: dict[tuple[str, int], int] = {}
    for weight in spec.weights:
        if weight.role in ("mtp", "expert", "vision") or len(weight.shape) != 2:
            continue
        shape, copies = local_shape(weight, spec, split), local_copies(weight, spec, split)
        parent, _, last = weight.name.removesuffix(".weight").rpartition(".")
        bits = form.storage.bits if form.storage and form.quantizes(weight) else 8 * form.plain_bytes
        tensor = (f"{parent}.{_FUSED.get(last, last)}", copies)
        sizes[tensor] = sizes.get(tensor, 0) + ceil(prod(shape) * bits / 8)
    return sum(_unused(size) * copies for (_, copies), size in sizes.items())


def _unused(size: int) -> int:
    left = -size % _STEP
    return left if size >= _LARGE and left <= _UNSPLIT else 0


def _padded(weight: Weight, shape: tuple[int, ...], padding: Padding) -> tuple[int, ...]:
    """Outputs of gate and up, and inputs of down, are the experts' width; the other side is the model's."""
    out, into = shape[-2], shape[-1]
    if weight.split == "columns":
        return (*shape[:-2], _up(out, padding.hidden), _up(into, padding.intermediate))
    halves = 2 if "gate_up" in weight.name else 1
    return (*shape[:-2], halves * _up(out // halves, padding.intermediate), _up(into, padding.hidden))


def _up(size: int, multiple: int) -> int:
    return ceil(size / multiple) * multiple


def _term(role: str, found: _Sum, form: Precision) -> Term:
    count = f"{found.elements / 1e6:,.0f} M" if found.elements >= 1e6 else f"{found.elements:,}"
    if found.packed and form.storage:
        storage = form.storage
        because = f"{found.packed / 1e6:,.0f} M in {storage.name}, {storage.bits} bits"
        because += f", scales {show_bytes(found.side)}" if found.side else ""
        rest = found.elements - found.packed
        because += f"; {rest:,} in {8 * form.plain_bytes} bits" if rest else ""
    else:
        because = f"{count} x {form.plain_bytes} B"
    if role in ("embedding", "head"):
        because += ", rows padded to 64"
    return Term(name=f"weights: {_TITLES[role]}", bytes=found.bytes, because=because, source="derived")


def _unlisted_vision(spec: ModelSpec, form: Precision) -> Term:
    size = spec.vision_parameters
    if size is None:
        return Term(
            name="weights: vision encoder",
            bytes=0,
            because="config.json does not give its size; pass the folder with the weights",
            source="assumed",
        )
    return Term(
        name="weights: vision encoder",
        bytes=size * form.plain_bytes,
        because=f"{size / 1e6:,.0f} M x {form.plain_bytes} B",
        source="derived",
    )


def _whole(spec: ModelSpec, split: Split, form: Precision) -> Term:
    """Of a model whose tensors are not listed: everything alike."""
    bits = form.storage.bits if form.storage else 8 * form.plain_bytes
    return Term(
        name="weights",
        bytes=ceil(spec.parameters * bits / 8 / split.gpus),
        because=f"{spec.parameters / 1e6:,.0f} M x {bits} bits / {split.gpus} GPUs, tensors are not listed",
        source="assumed",
    )


def rotary_bytes(spec: ModelSpec) -> int:
    """The table of cosines and sines, 16 bits each; 0 for models that place tokens another way."""
    return (spec.max_position or 0) * _rotary_width(spec) * 2


def _rotary_width(spec: ModelSpec) -> int:
    """Values a position. Models with a table of places, and those without attention, have none."""
    placed = any(word in w.name for w in spec.weights for word in _PLACES if w.role == "embedding")
    if placed or all(group.kind in ("linear", "none") for group in spec.groups):
        return 0
    keys = dict(spec.config or {})
    inner = keys.get("text_config")
    if isinstance(inner, dict):
        keys |= cast("dict[str, object]", inner)
    latent = keys.get("qk_rope_head_dim")
    if isinstance(latent, int):
        return latent
    share = keys.get("partial_rotary_factor") or keys.get("rotary_pct") or _nested_share(keys)
    return round(spec.head_dim * share) if isinstance(share, (int, float)) else spec.head_dim


def _nested_share(keys: Mapping[str, object]) -> object:
    nested = keys.get("rope_parameters")
    return (
        cast("dict[str, object]", nested).get("partial_rotary_factor") if isinstance(nested, dict) else None
    )


def lora(spec: ModelSpec, split: Split, slots: Lora, element_bytes: int, *, experts: bool = False) -> Term:
    """Adapters for every linear layer and the head: A (rank x inputs) whole, B (outputs x rank) divided.

    Layers divided by columns hold the opposite. `experts`: each routed expert has adapters too.
    """
    per_rank = 0
    roles = ("attention", "mlp", "expert") if experts else ("attention", "mlp")
    for weight in spec.weights:
        if weight.role not in roles or len(weight.shape) < 2:
            continue
        if weight.role == "expert":
            *many, out, into = local_shape(weight, spec, split)
            per_rank += (out + into) * prod(many) * local_copies(weight, spec, split)
            continue
        if len(weight.shape) != 2:
            continue
        out, into = local_shape(weight, spec, split)
        per_rank += (out + into) * local_copies(weight, spec, split)
    per_rank += padded_vocabulary(spec) + spec.hidden_size
    total = per_rank * slots.rank * slots.slots * element_bytes
    return Term(
        name="LoRA slots",
        bytes=total,
        because=(
            f"{slots.slots} x rank {slots.rank} x {per_rank:,} inputs and outputs of linear layers"
            f"{', experts' if experts and spec.experts else ''} and head x {element_bytes} B"
        ),
        source="derived",
    )


def draft(spec: ModelSpec, split: Split, form: Precision) -> Term:
    """The weights of a model that drafts tokens, divided like the model itself."""
    loaded = load(spec, replace(split, stages=1), form)
    count = sum(local_elements(w, spec, replace(split, stages=1)) for w in spec.weights if w.role != "mtp")
    return Term(
        name="draft model",
        bytes=loaded.bytes,
        because=f"{spec.name}: {count / 1e6:,.0f} M weights on each GPU",
        source="derived",
    )


def ahead(spec: ModelSpec, split: Split, form: Precision) -> Term:
    """The model's own layers that predict further tokens. Their place in the KV cache is not counted."""
    bits = form.storage.bits if form.storage else 8 * form.plain_bytes
    return Term(
        name="layers that predict ahead",
        bytes=ceil(spec.mtp_parameters * bits / 8 / split.tensor),
        because=f"{spec.mtp_parameters / 1e6:,.0f} M x {bits} bits / {split.tensor}, the embedding shared",
        source="assumed",
    )

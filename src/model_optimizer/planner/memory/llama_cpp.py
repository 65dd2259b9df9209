"""llama.cpp's memory: layers on the GPU, the rest in host memory, the cache of the layers where they are.

`-ngl` counts layers from the last one, and one more for the output head; the embedding stays in host memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from model_optimizer.core import Fit, FitQuestion, GgufModel, ModelSpec, Scheme, Setting, Term, UsageError
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import memory

# (bytes, numbers) of a block by the value of --cache-type-k and -v.
CACHE_TYPES = {
    "auto": (2, 1), "f16": (2, 1), "bf16": (2, 1), "f32": (4, 1), "q8_0": (34, 32), "q5_1": (24, 32),
    "q5_0": (22, 32), "q4_1": (20, 32), "q4_0": (18, 32), "iq4_nl": (18, 32),
}  # fmt: skip
# Bits a weight of the GGUF format that comes nearest to a scheme.
NEAREST = {4: ("Q4_0", 4.5), 8: ("Q8_0", 8.5), 16: ("F16", 16.0), 32: ("F32", 32.0)}
PADDING = 256
STEP_TOKENS = 512
DEFAULT_LENGTH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What lies on the GPU, and what in host memory."""

    layers: int
    gpu: tuple[Term, ...]
    host_bytes: int
    kv_bytes: int

    @property
    def bytes(self) -> int:
        return sum(term.bytes for term in self.gpu)


def fit(question: FitQuestion, model: GgufModel) -> Fit:
    """Whether the layers asked for fit beside their cache, and what would fit instead.

    Several GPUs share the layers (`--split-mode layer`, the default): numbers are of the fullest one.
    """
    length, slots = _length(question, model), question.max_num_seqs or 1
    room = min(question.vram_bytes or question.gpu.total_bytes, question.gpu.total_bytes)
    room -= question.gpu.used_bytes
    wanted = len(model.layers) + 1 if question.gpu_layers is None else question.gpu_layers
    placed = place(question, model, layers=wanted, tokens=length * slots)

    def fits(tokens: int) -> bool:
        return place(question, model, layers=wanted, tokens=tokens * slots).bytes <= room

    limit = model.max_position or max(length, 1 << 20)
    per_token = sum(_per_token(question, width) for width in model.kv_widths)
    return Fit(
        fits=placed.bytes <= room,
        binding=_binding(placed, room, length, slots),
        because=_because(question, model, placed, room, length * slots),
        weights_bytes=sum(t.bytes for t in placed.gpu if t.name.startswith("weights")),
        activation_bytes=sum(t.bytes for t in placed.gpu if t.name == "compute buffer"),
        cuda_graph_bytes=0,
        non_torch_bytes=sum(t.bytes for t in placed.gpu if t.name.startswith("CUDA")),
        kv_cache_bytes=placed.kv_bytes,
        kv_bytes_per_token=ceil(per_token),
        kv_cache_tokens=_padded(length * slots),
        max_concurrency=float(slots),
        largest_max_model_len=_largest(limit, fits) if question.longest else None,
        terms=placed.gpu,
        model=model.name,
        gpu=question.gpu.name,
        gpus=_gpus(question),
        engine="llama.cpp",
        engine_version=question.version,
        scheme=model.format,
        total_bytes=question.gpu.total_bytes,
        budget_bytes=room,
        max_model_len=length,
        max_num_seqs=slots,
        host_bytes=placed.host_bytes,
        settings=_settings(question, model, wanted, length, slots),
        notes=(
            model.because,
            "compute buffer and CUDA context are estimates",
            *(
                ("layers are shared out evenly: --split-mode layer, GPUs alike",)
                if _gpus(question) > 1
                else ()
            ),
        ),
    )


def place(question: FitQuestion, model: GgufModel, *, layers: int, tokens: int) -> Placed:
    """Terms of the fullest GPU when this many layers, the head counted last, are put on GPUs."""
    every = len(model.layers)
    inside = min(layers, every)
    head = layers > every
    caches = [ceil(_per_token(question, w) * _padded(tokens)) for w in model.kv_widths]
    left, kept = model.layers[: every - inside], sum(caches[: every - inside])
    mine = _fullest(model, caches, every - inside, head, _gpus(question))
    host = model.input_bytes + sum(left) + kept + (0 if head else model.output_bytes)
    head = head and mine.stop == every
    on_gpu, inside = model.layers[mine], mine.stop - mine.start
    kv = sum(caches[mine])
    terms = [
        Term(
            name="weights: layers",
            bytes=sum(on_gpu),
            because=f"{inside} of {every} layers in {model.format}",
            source=model.source,
        )
    ]
    if head:
        terms.append(
            Term(
                name="weights: output head",
                bytes=model.output_bytes,
                because="loaded beside the embedding, which stays in host memory",
                source=model.source,
            )
        )
    terms += [
        Term(
            name="KV cache",
            bytes=kv,
            because=f"{_padded(tokens):,} tokens in {inside} layers, {_cache_word(question)}",
            source="derived",
        ),
        _compute(model, head),
        _context(question, inside + head),
    ]
    terms += _projector(question)
    return Placed(layers=layers, gpu=tuple(terms), host_bytes=host, kv_bytes=kv)


def _gpus(question: FitQuestion) -> int:
    return question.tensor_parallel * question.pipeline_parallel


def _fullest(model: GgufModel, caches: Sequence[int], first: int, head: bool, gpus: int) -> slice:
    """The layers of the GPU that holds most, of those from `first` on; the last one also has the head."""
    every = len(model.layers)
    each = ceil((every - first + head) / gpus)
    starts = range(first, every, max(1, each)) if every > first else (every,)
    parts = [slice(start, min(start + each, every)) for start in starts]

    def held(part: slice) -> int:
        with_head = model.output_bytes if head and part.stop == every else 0
        return sum(model.layers[part]) + sum(caches[part]) + with_head

    return max(parts, key=held)


def _compute(model: GgufModel, head: bool) -> Term:
    width = max(model.vocab_size if head else 0, 2 * model.intermediate_size)
    total = STEP_TOKENS * 4 * (width + 4 * model.hidden_size)
    return Term(
        name="compute buffer",
        bytes=total,
        because=f"{STEP_TOKENS} tokens a step x 4 B x ({width:,} widest + 4 x {model.hidden_size:,} hidden)",
        source="assumed",
    )


def _projector(question: FitQuestion) -> list[Term]:
    """The encoder of images, which lies on the GPU whatever layers do; a .gguf file does not hold it."""
    found = question.model.vision_parameters
    if question.gguf is not None or not found:
        return []
    return [
        Term(
            name="weights: encoder of images",
            bytes=2 * found,
            because=f"{found:,} x 2 B, a file of its own (--mmproj)",
            source="derived",
        )
    ]


def _context(question: FitQuestion, used: int) -> Term:
    found = memory.context("before", question.gpu.compute_capability, "0.10.2") if used else None
    return Term(
        name="CUDA context",
        bytes=found.context.bytes if found else 0,
        because=f"as of another engine on {found.context.gpu}" if found else "no layer is on the GPU",
        source="assumed",
    )


def _cache_word(question: FitQuestion) -> str:
    return "f16" if question.kv_cache_dtype == "auto" else question.kv_cache_dtype


def _per_token(question: FitQuestion, width: int) -> float:
    kind = question.kv_cache_dtype.lower()
    if kind not in CACHE_TYPES:
        raise UsageError(
            f"llama.cpp has no KV cache type `{question.kv_cache_dtype}`",
            hint=(f"known: {', '.join(CACHE_TYPES)}",),
        )
    size, numbers = CACHE_TYPES[kind]
    return width * size / numbers


def _padded(tokens: int) -> int:
    return ceil(tokens / PADDING) * PADDING


def _length(question: FitQuestion, model: GgufModel) -> int:
    asked, limit = question.max_model_len, model.max_position
    if asked is not None and limit is not None and asked > limit:
        raise UsageError(
            f"--max-model-len {asked} is above the limit of `{model.name}`, {limit} tokens",
            hint=(f"pass {limit} or less",),
            reference="model-length",
        )
    return asked or min(limit or DEFAULT_LENGTH, DEFAULT_LENGTH)


def _largest(limit: int, fits: Callable[[int], bool]) -> int | None:
    if not fits(1):
        return None
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _binding(placed: Placed, room: int, length: int, slots: int) -> str:
    if placed.bytes <= room:
        return "max_num_seqs"
    loaded = sum(term.bytes for term in placed.gpu if term.name.startswith("weights"))
    return "weights" if loaded > room else "kv_cache"


def _because(question: FitQuestion, model: GgufModel, placed: Placed, room: int, tokens: int) -> str:
    if placed.bytes <= room:
        beside = show_bytes(placed.host_bytes)
        return f"{show_bytes(placed.bytes)} of {show_bytes(room)}, {beside} in host memory"
    counts = range(min(placed.layers, len(model.layers) + 1), -1, -1)
    most = next((n for n in counts if place(question, model, layers=n, tokens=tokens).bytes <= room), None)
    over = f"{show_bytes(placed.bytes - room)} more than {show_bytes(room)}"
    return f"{over}; {most} layers on the GPU would fit (-ngl {most})" if most else over


def _settings(
    question: FitQuestion, model: GgufModel, layers: int, length: int, slots: int
) -> tuple[Setting, ...]:
    def one(name: str, value: object, asked: object, because: str) -> Setting:
        told = asked is not None
        return Setting(
            name=name,
            value=str(value),
            because="asked for" if told else because,
            source="user" if told else "assumed",
        )

    return (
        one("n-gpu-layers", layers, question.gpu_layers, f"all {len(model.layers)} layers and the head"),
        one("ctx-size", length * slots, question.max_model_len, "a context to begin with"),
        one("parallel", slots, question.max_num_seqs, "one request at a time"),
    )


def from_spec(spec: ModelSpec, scheme: Scheme | None) -> GgufModel:
    """About what a GGUF file of this model would be, in the format nearest to the scheme."""
    bits = scheme.weight_bits if scheme else 16
    word, width = NEAREST[min(NEAREST, key=lambda known: abs(known - bits))]
    outer = {"embedding": 0, "head": 0}
    inner = 0
    for weight in spec.weights:
        if weight.role in outer:
            outer[weight.role] += weight.parameters
        elif weight.role not in ("mtp", "vision"):
            inner += weight.parameters
    inner = inner or spec.parameters - spec.embedding_parameters - spec.head_parameters
    each = round(inner * width / 8 / spec.layers)
    head = outer["head"] or outer["embedding"] or spec.embedding_parameters
    widths = [
        width_of for group in spec.groups for width_of in [group.kv_bytes_per_token_16 // 2] * group.layers
    ]
    return GgufModel(
        name=spec.name,
        architecture=spec.model_type,
        layers=(each,) * spec.layers,
        input_bytes=round((outer["embedding"] or spec.embedding_parameters) * width / 8),
        output_bytes=round(head * width / 8),
        kv_widths=tuple(widths) or (0,) * spec.layers,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        vocab_size=spec.vocab_size,
        max_position=spec.max_position,
        format=word,
        because=f"sizes of {word} by arithmetic, {width:g} bits a weight; pass the .gguf file for its own",
        source="assumed",
    )

"""Rules about tensors against the description: types, scales, exclusions, layers that an engine stacks."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model_optimizer.core import Comparison, ModelSpec
from model_optimizer.system.models.gaps import gaps
from model_optimizer.system.safetensors_header import BITS, Tensor

from . import format_claims as claiming
from .format_checkpoint import SCALES, Checkpoint, numbers_out, split
from .format_claims import Claim, Claims
from .format_found import checked, refused, remark

PLAIN = frozenset({"F32", "F16", "BF16", "F64"})
PACKED = frozenset({"weight_packed", "qweight"})
ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
"""Engines keep the choice of experts in full precision whatever the description says."""

PLAIN_PARTS = ("eh_proj", "shared_head.head", "indexer.weights_proj")
"""So they do with these of DeepSeek: vLLM 0.25.1 deepseek_mtp.py and deepseek_v2.py hand them no format."""

WHOLE = frozenset({"BOOL", "I8", "I16", "I32", "I64", "U16", "U32", "U64"})
"""U8 is left out: scales of the MX formats are exponents."""

NARROW = frozenset({"I8", "U8", "F8_E4M3", "F8_E5M2", "F4", "I32"})
STACKED = (
    ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"), ("query", "key", "value"),
)  # fmt: skip
"""Layers that engines load as one, so that their formats must be equal: vLLM's packed_modules_mapping."""

DTYPES: Mapping[tuple[str, str, int], frozenset[str]] = {
    ("weight", "float", 8): frozenset({"F8_E4M3"}),
    ("weight", "int", 8): frozenset({"I8"}),
    ("weight", "float", 4): frozenset({"U8"}),
    ("weight_packed", "float", 4): frozenset({"U8"}),
    ("weight_packed", "int", 4): frozenset({"I32"}),
    ("weight_packed", "int", 8): frozenset({"I32"}),
    ("qweight", "int", 4): frozenset({"I32"}),
    ("qweight", "int", 8): frozenset({"I32"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One linear layer. `claim` is None when the description says that it keeps its precision."""

    name: str
    has: Mapping[str, Tensor]
    claim: Claim | None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {part: tensor.shape for part, tensor in self.has.items()}

    @property
    def quantized(self) -> bool:
        """Whether its weight is stored in numbers that need scales."""
        weight = self.has.get("weight")
        return bool(PACKED & self.has.keys()) or (weight is not None and weight.dtype in NARROW)


def linear_layers(checkpoint: Checkpoint, claims: Claims | None) -> tuple[Layer, ...]:
    """Layers that have a matrix, without lookup tables: those are of another class and never claimed."""
    found: list[Layer] = []
    for name, has in checkpoint.layers().items():
        matrix = next((has[part] for part in ("weight_packed", "qweight", "weight") if part in has), None)
        if matrix is None or len(matrix.shape) != 2 or _is_table(name):
            continue
        plain_for_all = name.rpartition(".")[2] in ROUTERS or name.endswith(PLAIN_PARTS)
        if plain_for_all and matrix.dtype in PLAIN:
            continue
        claim = None if claims is None or (name.endswith("lm_head") and "weight" in has) else claims.of(name)
        found.append(Layer(name=name, has=has, claim=claim))
    return tuple(found)


def _is_table(name: str) -> bool:
    last = name.rpartition(".")[2]
    return "embed" in last or last in ("wte", "wpe", "word_embeddings", "relative_attention_bias")


def bytes_of_claimed(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> tuple[int, int]:
    """(stored, in 16 bits) of the layers that are described as quantized, scales among what is stored."""
    claimed = {layer.name: layer for layer in layers if layer.claim}
    stored = sum(held.tensor.bytes for name, held in checkpoint.tensors.items() if split(name)[0] in claimed)
    plain = 0
    for layer in claimed.values():
        if layer.claim and (found := claiming.sides(layer.claim, layer.shapes)):
            plain += 2 * found[0] * found[1]
        elif "weight" in layer.has:
            plain += 2 * layer.has["weight"].elements
    return stored, plain


def census(checkpoint: Checkpoint, layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """Types of all tensors by bytes, and whether each claimed layer has the type of its claim."""
    sizes: Counter[str] = Counter()
    for stored in checkpoint.tensors.values():
        sizes[stored.tensor.dtype] += stored.tensor.bytes
    total = max(1, checkpoint.size)
    says = ", ".join(f"{dtype} {100 * count / total:.0f} %" for dtype, count in sizes.most_common(6))
    yield remark("types", f"{len(checkpoint.tensors):,} tensors: {says} of the bytes", reference="headers")
    if strange := sorted(sizes.keys() - BITS.keys()):
        says = f"{', '.join(f'`{dtype[:20]}`' for dtype in strange[:3])}: no type of the format"
        yield refused("dtypes", says, reference="safetensors: a loader stops at a type that it does not know")
    claimed = [layer for layer in layers if layer.claim]
    if not claimed:
        return
    faults = [fault for layer in claimed if (fault := _wrong_type(layer))]
    yield checked(
        "weight_type",
        faults,
        of=len(claimed),
        what="quantized layers have the type that is described",
        reference="an engine allocates the type of the description and fails, or reads other bits",
        hint="quantize again, or list the layer as excluded",
    )


def _wrong_type(layer: Layer) -> str | None:
    claim = layer.claim
    if claim is None:
        return None
    if not layer.quantized:
        stored = layer.has["weight"].dtype
        return f"`{layer.name}` is {stored} and described as {claim.number} of {claim.bits} bits"
    for part, tensor in layer.has.items():
        if part in SCALES and tensor.dtype in WHOLE:
            return f"`{layer.name}.{part}` is {tensor.dtype}, and a scale is no whole number"
        wanted = DTYPES.get((part, claim.number, claim.bits))
        if wanted and tensor.dtype not in wanted:
            return f"`{layer.name}.{part}` is {tensor.dtype}, {' or '.join(sorted(wanted))} is described"
    return None


def excluded(layers: tuple[Layer, ...], claims: Claims | None) -> Iterator[Comparison]:
    """No layer is quantized that the description leaves out."""
    faults = [f"`{layer.name}` is quantized" for layer in layers if layer.quantized and layer.claim is None]
    plain = sum(layer.claim is None for layer in layers)
    if claims is None and not faults:
        return
    says = "nothing describes it" if claims is None else "the description leaves it out"
    yield checked(
        "excluded",
        [f"{fault}, {says}" for fault in faults],
        of=plain,
        what="layers keep their precision as described",
        reference="an engine would read packed numbers as weights",
        hint="correct `ignore` in config.json",
    )


def scales(layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """Every quantized layer has the tensors that its format needs, and none that belong to another."""
    missing: list[str] = []
    extra: list[str] = []
    quantized = [layer for layer in layers if layer.claim and layer.quantized]
    for layer in quantized:
        assert layer.claim
        needed = claiming.parts(layer.claim, layer.shapes)
        missing += [f"`{layer.name}.{part}`" for part in needed if part not in layer.has]
        extra += [f"`{layer.name}.{part}`" for part in layer.has if part not in needed and part in OF_SCALES]
    for layer in layers:
        if not layer.quantized:
            extra += [f"`{layer.name}.{part}`" for part in layer.has if part in OF_WEIGHTS]
    if quantized:
        yield checked(
            "scales",
            [f"{name} is missing" for name in missing],
            of=len(quantized),
            what="quantized layers have all their scales",
            reference="left out, an engine fails or multiplies by what lay in memory",
        )
    if extra:
        more = f" and {len(extra) - 1:,} more" if len(extra) > 1 else ""
        says = f"{extra[0]}{more}: the described format does not use it"
        yield checked(
            "extra", [says], of=len(layers), what="layers", reference="an engine raises on unknown tensors"
        )


OF_WEIGHTS = frozenset(
    {"weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "scales"}
)
OF_SCALES = OF_WEIGHTS | {"weight_zero_point", "qzeros", "weight_g_idx", "input_scale", "input_global_scale"}


def shapes(layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """Scales have the shape that group size, blocks or channels give."""
    faults: list[str] = []
    count = 0
    for layer in layers:
        if layer.claim is None or not layer.quantized:
            continue
        if fault := _indivisible(layer):
            faults.append(fault)
        for part, wanted in claiming.parts(layer.claim, layer.shapes).items():
            if wanted is None or part not in layer.has:
                continue
            count += 1
            got = layer.has[part].shape
            if tuple(s for s in got if s != 1) != tuple(s for s in wanted if s != 1):
                faults.append(f"`{layer.name}.{part}` is {list(got)}, {list(wanted)} is described")
    if count:
        yield checked(
            "shapes",
            faults,
            of=count,
            what="scales have the shape that is described",
            reference="group size, blocks and channels of the description",
        )


def fitting(
    checkpoint: Checkpoint, layers: tuple[Layer, ...], spec: ModelSpec | None
) -> Iterator[Comparison]:
    """Weights have the sides that the architecture gives them. Silent where they do."""
    shapes = {weight.name: weight.shape for weight in spec.weights} if spec else {}
    got: dict[str, tuple[int, ...] | None] = {
        f"{layer.name}.weight": claiming.sides(layer.claim, layer.shapes)
        for layer in layers
        if layer.claim and layer.quantized
    }
    for name, stored in checkpoint.tensors.items():
        if stored.tensor.dtype in PLAIN:
            got.setdefault(name, stored.tensor.shape)
    faults: list[str] = []
    for name, sides in got.items():
        wanted = shapes.get(numbers_out(name))
        plain = name in checkpoint.tensors and checkpoint.tensors[name].tensor.dtype in PLAIN
        if not wanted or sides is None or tuple(sides) == wanted or (plain and tuple(sides) == wanted[::-1]):
            continue
        module = name.removesuffix(".weight")
        faults.append(f"`{module}` is {list(sides)}, the architecture has {list(wanted)}")
    if faults:
        yield checked(
            "architecture",
            faults,
            of=len(got),
            what="weights",
            reference="config.json gives their sides; an engine refuses others",
            hint="take config.json and weights of the same model",
        )


def _indivisible(layer: Layer) -> str | None:
    claim = layer.claim
    found = claiming.sides(claim, layer.shapes) if claim else None
    if claim and claim.group and found and found[1] % claim.group:
        return f"`{layer.name}` has {found[1]} inputs, which groups of {claim.group} do not divide"
    return None


def cache_scales(checkpoint: Checkpoint, claims: Claims | None) -> Iterator[Comparison]:
    """Scales of the KV cache are there when promised."""
    if claims is None:
        return
    kept = [name for name in checkpoint.tensors if name.endswith((".k_scale", ".v_scale"))]
    if not claims.cache_scales and not kept:
        return
    if claims.cache_scales:
        faults = [] if kept else ["a KV cache in 8 bits is described, and no layer has k_scale and v_scale"]
        halves = Counter(name.rpartition(".")[2] for name in kept)
        if kept and halves["k_scale"] != halves["v_scale"]:
            faults.append(f"{halves['k_scale']} k_scale and {halves['v_scale']} v_scale")
    else:
        faults = [f"`{kept[0]}` is there, and no quantized KV cache is described"]
    yield checked(
        "kv_scales",
        faults,
        of=len(kept),
        what="scales of the KV cache",
        reference="without them an engine takes 1.0, and accuracy suffers",
    )


def stacked(layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """Layers that an engine loads as one are stored alike."""
    claims = {layer.name: layer.claim for layer in layers}
    faults: list[str] = []
    count = 0
    for name in claims:
        parent, _, last = name.rpartition(".")
        group = next((g for g in STACKED if g[0] == last), None)
        together = [f"{parent}.{other}" for other in group or () if f"{parent}.{other}" in claims]
        if len(together) < 2:
            continue
        count += 1
        if len({claims[other] for other in together}) > 1:
            faults.append(f"{', '.join(other.rpartition('.')[2] for other in together)} of `{parent}` differ")
    if count:
        yield checked(
            "stacked",
            faults,
            of=count,
            what="groups of layers that engines stack are stored alike",
            reference="vLLM packed_modules_mapping: one format for the parts of a stacked layer",
            hint="exclude all of them or none",
        )


def whole(checkpoint: Checkpoint, spec: ModelSpec | None) -> Iterator[Comparison]:
    """Every layer of an architecture that is known has its weights."""
    if spec is None or not spec.weights:
        return
    modules = [
        name
        for name, has in checkpoint.layers().items()
        if has.keys() & {"weight", "weight_packed", "qweight"}
    ]
    yield checked(
        "whole",
        [_where(gap, modules) for gap in gaps(spec, modules)] + _absent(spec, modules),
        of=len(modules),
        what="layers, none lacks what its neighbours have",
        reference="the architecture in config.json; vLLM by default checks this for unquantized models only",
        hint="make it again from a whole checkpoint",
    )


def _where(gap: str, modules: list[str]) -> str:
    """`..., first without: model.layers.4.mlp.up_proj`, where one number of the name varies."""
    kind, _, counts = gap.partition(":")
    if kind.count("*") != 1:
        return gap
    there = set(modules)
    total = int(counts.rpartition(" of ")[2].replace(",", ""))
    lost = next((name for n in range(total) if (name := kind.replace("*", str(n))) not in there), None)
    return f"{gap}, first without: {lost}" if lost else gap


def _absent(spec: ModelSpec, modules: list[str]) -> list[str]:
    """The embedding, last norm or head of an architecture whose layers have the names that were expected."""
    there = {numbers_out(module) for module in modules}
    wanted = {w.name.removesuffix(".weight"): w for w in spec.weights if w.name.endswith(".weight")}
    norms = [name for name, weight in wanted.items() if weight.role == "norm" and "*" in name]
    if not norms or not there.issuperset(norms):
        return []
    single = [
        name for name, w in wanted.items() if "*" not in name and w.role in ("embedding", "norm", "head")
    ]
    return [f"{name}: 0 of 1" for name in single if name not in there]


def summary(layers: tuple[Layer, ...]) -> Iterator[Comparison]:
    """How many layers are quantized, and which kinds are not."""
    quantized = sum(layer.claim is not None for layer in layers)
    plain = Counter(numbers_out(layer.name) for layer in layers if layer.claim is None)
    if not quantized or not plain:
        return
    names = ", ".join(f"{name}" for name, _ in plain.most_common(6))
    yield remark(
        "kept", f"{quantized:,} layers are quantized; in full precision: {names}", reference="description"
    )

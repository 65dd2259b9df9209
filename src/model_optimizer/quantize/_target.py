"""Where a checkpoint is to run: pairs that cannot work are refused from the facts, before the first byte."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from model_optimizer.core import Engine, Host, NoFeasiblePlan, Scheme, UsageError, lacking, plugins
from model_optimizer.core.paths import Order
from model_optimizer.core.site import GpuEngine, Site
from model_optimizer.facts import compressed_tensors, gpus, releases, vllm

FORMATS = ("compressed_tensors", "modelopt")
"""What the quantizers for servers write; engines of graphs are reached by `mopt quantize --to`."""


PACKINGS = {"nvfp4": "nvfp4-pack-quantized", "mxfp4": "mxfp4-pack-quantized"}
"""What compressed-tensors calls formats that not every release of it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`engine` is a name, with `==version` where it matters. `weight_only` accepts that a GPU stores the
    format and computes in 16 bits."""

    gpu: str | None = None
    engine: str | None = None
    weight_only: bool = False


def require_possible(
    scheme: Scheme, task: str, target: Target, engines: Mapping[str, Engine]
) -> tuple[str, ...]:
    """What the target makes of the scheme, a line each. Raises NoFeasiblePlan when it cannot run it."""
    name, version = engine_of(target, engines)
    if name is not None:
        _require_read(scheme, task, name, engines[name])
    notes = _release(engines[name], version) if name and version else ()
    if name == "vllm" and version:
        _require_packing(scheme, version)
    if target.gpu is None:
        return notes
    name = name or "vllm"
    if not hasattr(engines[name], "ability"):
        raise UsageError(f"`{name}` does not run on GPUs", hint=("leave --gpu out",))
    engine = cast("GpuEngine", engines[name])
    fact = gpus.find(target.gpu)
    site = Site(gpu=fact.name, vendor=fact.vendor, compute_capability=fact.compute_capability)
    found = engine.ability(scheme, site, version or engine.versions()[-1])
    if found.how == "no":
        raise NoFeasiblePlan(
            f"{fact.name} cannot run `{scheme.name}` with {name} {version or ''}".rstrip(),
            cause=(found.because, f"source: {found.source}"),
            hint=("`mopt plan MODEL --gpu ...` names the formats that it can",),
            reference="not-on-this-gpu",
        )
    if found.how == "weight-only" and scheme.activation_bits < 16 and not target.weight_only:
        raise NoFeasiblePlan(
            f"{fact.name} does not compute in `{scheme.name}`: it would only store it",
            cause=(found.because, f"source: {found.source}"),
            hint=(
                "--weight-only makes it all the same, for its smaller weights",
                "4-bit integer weights (awq-int4, gptq-int4) are smaller still, or as small",
            ),
            reference="not-on-this-gpu",
        )
    return (*notes, f"{fact.name}: {found.because}")


def unchecked(target: Target, form: str) -> tuple[str, ...]:
    """Says that nothing was named which the checkpoint could be checked against."""
    if form not in FORMATS or target.gpu or target.engine:
        return ()
    return ("not checked against a GPU or an engine: name them with --gpu and --engine",)


def require_kernels(
    order: Order, scheme: Scheme, target: Target, engines: Mapping[str, Engine], host: Host
) -> tuple[str, ...]:
    """A note where the engine that was named could not compute the scheme on this machine. NoFeasiblePlan
    where it could on none."""
    name, _version = engine_of(target, engines)
    if name is None:
        return ()
    if nowhere := lacking(engines[name], order.model, scheme, Host()):
        raise NoFeasiblePlan(
            f"{engines[name].TITLE} does not run `{order.model.name}` in `{scheme.name}`",
            cause=(nowhere,),
            hint=("take another engine, or serve the model in 16 bits",),
            reference="not-with-this-engine",
        )
    here = lacking(engines[name], order.model, scheme, host)
    return (f"it will not run on this machine: {here}",) if here else ()


def engine_of(target: Target, engines: Mapping[str, Engine]) -> tuple[str | None, str | None]:
    """(name, version) of `vllm==0.25.1`. Raises UsageError for an engine that is not known."""
    if target.engine is None:
        return None, None
    word, _, version = target.engine.partition("==")
    name = plugins.canonical(word)
    if name not in engines:
        raise UsageError(f"there is no engine `{word}`", hint=(f"known: {', '.join(engines)}",))
    return name, version or None


def _release(engine: Engine, version: str) -> tuple[str, ...]:
    """A note when the release is not in the facts. UsageError for one older than all that are."""
    if not hasattr(engine, "versions"):
        return (f"releases of {engine.TITLE} are not told apart: {version} was not looked at",)
    known = cast("GpuEngine", engine).versions()
    if releases.nearest(version, known) is None:
        raise UsageError(
            f"there is no {engine.TITLE} {version} in the facts", hint=(f"known: {', '.join(known)}",)
        )
    stands = releases.stand_in(version, known)
    return (f"{engine.TITLE} {version} is not in the facts; {stands} stands for it",) if stands else ()


def _require_packing(scheme: Scheme, version: str) -> None:
    """A release of vLLM reads what the compressed-tensors that it pins knows."""
    packing, pinned = PACKINGS.get(scheme.name), vllm.release(version).compressed_tensors
    known = compressed_tensors.understood(pinned) if pinned else None
    if packing is None or known is None or packing in known.formats:
        return
    raise NoFeasiblePlan(
        f"vLLM {version} does not read `{scheme.name}` as it is made here",
        cause=(f"it pins compressed-tensors {pinned}, which does not know the format {packing}",),
        hint=("take a newer vLLM, or a format that it reads: fp8, int8, awq-int4, gptq-int4",),
        reference="not-with-this-engine",
    )


def _require_read(scheme: Scheme, task: str, name: str, engine: Engine) -> None:
    reads = sorted({s for form in FORMATS for s in engine.READS.get(form, ())})
    able = any(scheme.name in schemes for schemes in engine.READS.values())
    if not able or task not in engine.TASKS:
        raise NoFeasiblePlan(
            f"{engine.TITLE} does not run `{scheme.name}` for the task `{task}`",
            cause=(f"it runs {', '.join(reads) or 'no quantized checkpoint'}",),
            hint=(f"take one of these, or another engine than {name}",),
            reference="not-with-this-engine",
        )

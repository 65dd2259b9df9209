"""The stage: fewer bits. The chain may begin with a conversion, where the quantizer reads another format.

asked = Asked(wanted=Wanted(path=Path("chats.jsonl")))
found = prepare(order, asked, kit, host)     what will be done and what it takes; nothing is written
quantize(found, out, run, progress)          do it
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_optimizer.core import Artifact, Engine, Host, Progress, RunWorker, Scheme, UsageError, paths
from model_optimizer.core.paths import Chain, Order, Work, choose
from model_optimizer.core.protocols import Tool
from model_optimizer.system.making import Bench, follow

from ._calibration import FEWEST, Calibration, Wanted, calibration
from ._choices import SEARCH_STEPS, Choices, configured
from ._compressor import Drive
from ._effort import effort
from ._hessian import few_tokens
from ._size import widest_matrix
from ._source import require_upright, require_whole
from ._target import Target, require_kernels, require_possible, unchecked

__all__ = [
    "FEWEST", "Asked", "Calibration", "Choices", "Kit", "Quantization", "Target", "Wanted", "calibration",
    "configured", "plan", "prepare", "quantize",
]  # fmt: skip

NARROW_BITS = 8
FEWEST_STEPS = 3
"""Of AWQ's search: llm-compressor 0.14 divides by two less, and with one it only rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user says of a quantization. `bits` is the budget of `mixed`, `search_steps` is for AWQ."""

    wanted: Wanted = field(default_factory=Wanted)
    target: Target = field(default_factory=Target)
    symmetric: bool | None = None
    exclude: tuple[str, ...] = ()
    search_steps: int | None = None
    bits: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What discovery found, by name."""

    tools: Mapping[str, Tool]
    schemes: Mapping[str, Scheme]
    engines: Mapping[str, Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What will be done, with what. `tools` have the choices in them."""

    work: Work
    tools: Mapping[str, Tool]
    schemes: Mapping[str, Scheme]


def plan(order: Order, tools: Mapping[str, Tool], schemes: Mapping[str, Scheme]) -> Chain:
    """The tools that make the order's scheme. Raises UsageError with what can be made instead."""
    if schemes[order.scheme].weight_bits > NARROW_BITS:
        raise UsageError(
            f"`{order.scheme}` is not a quantization",
            hint=("`mopt convert MODEL --to FORMAT` makes it in another format",),
        )
    quantization = order.model.quantization
    if quantization is not None:
        raise UsageError(
            f"`{order.model.name}` is quantized already",
            cause=(f"its config.json says {quantization.method} ({quantization.scheme or 'unknown'})",),
            hint=("start from the original checkpoint: what rounding took away cannot be brought back",),
            reference="already-quantized",
        )
    return choose(order, tools)


def prepare(order: Order, asked: Asked, kit: Kit, host: Host) -> Quantization:
    """Settle everything before the first byte: the tools, the calibration data, and what it takes.

    Raises UsageError for what cannot be made, NoFeasiblePlan for what the target cannot run, HostError for
    calibration data that the memory cannot hold.
    """
    scheme = kit.schemes[order.scheme]
    notes = require_possible(scheme, order.model.task, asked.target, kit.engines)
    chain = plan(order, kit.tools, kit.schemes)
    require_whole(order)
    notes = (*notes, *require_kernels(order, scheme, asked.target, kit.engines, host))
    notes = (*notes, *unchecked(asked.target, chain[-1].format))
    settled = Calibration()
    drives = _drives(chain, kit.tools)
    if drives:
        require_upright(order)
    if any(drive.calibrated for drive in drives):
        settled = calibration(asked.wanted, order.model, scheme, host.memory_available_bytes)
        notes = (*notes, f"calibration with {settled.source}: {settled.because}")
        if any(drive.hessian for drive in drives):
            notes = (*notes, *few_tokens(widest_matrix(order.model), settled.tokens))
    elif asked.wanted.path or asked.wanted.count or asked.wanted.length:
        raise UsageError(f"`{scheme.name}` needs no calibration data", hint=("leave --calibration out",))
    _check_choices(asked, scheme)
    choices = Choices(
        calibration=settled,
        symmetric=asked.symmetric,
        exclude=asked.exclude,
        search_steps=asked.search_steps or SEARCH_STEPS,
        bits=asked.bits,
    )
    tools = {name: configured(tool, choices) for name, tool in kit.tools.items()}
    needs = paths.needs(chain, order.model, tools, kit.schemes)
    found = effort(chain, order.model, choices, host)
    work = Work(
        chain=chain,
        source=order.source,
        needs=needs,
        vram_bytes=found.vram_bytes,
        seconds=found.seconds,
        notes=(*notes, *found.notes),
    )
    return Quantization(work=work, tools=tools, schemes=kit.schemes)


def quantize(found: Quantization, out: Path, run: RunWorker, progress: Progress) -> Artifact:
    """Carry out what was prepared. Raises ToolError, and HostError when the disk is full."""
    bench = Bench(tools=found.tools, schemes=found.schemes, run=run)
    return follow(found.work.chain, found.work.source, out, bench, progress)


def _drives(chain: Chain, tools: Mapping[str, Tool]) -> list[Drive]:
    """How the tools of a chain are driven, of those that run a quantizer of checkpoints."""
    found = (getattr(tools[hop.tool], "DRIVE", None) for hop in chain)
    return [drive for drive in found if isinstance(drive, Drive)]


def _check_choices(asked: Asked, scheme: Scheme) -> None:
    """A choice that this scheme does not have would be ignored, so it is refused."""
    if asked.bits is not None and scheme.name != "mixed":
        hint = (f"`{scheme.name}` has {scheme.weight_bits}",)
        raise UsageError("--bits is the budget of `mixed`", hint=hint)
    if asked.symmetric is not None and scheme.name not in ("awq_int4", "gptq_int4"):
        raise UsageError(f"`{scheme.name}` is what it is: --symmetric is for awq-int4 and gptq-int4")
    if asked.search_steps is None:
        return
    if scheme.name != "awq_int4":
        raise UsageError(f"`{scheme.name}` searches nothing: --search-steps is for awq-int4")
    if asked.search_steps < FEWEST_STEPS:
        raise UsageError(f"AWQ takes {FEWEST_STEPS} search steps or more: fewer leave nothing to choose")

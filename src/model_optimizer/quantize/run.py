"""The stage: fewer bits. The chain may begin with a conversion, where the quantizer reads another format."""

from collections.abc import Mapping
from pathlib import Path

from model_optimizer.core import Artifact, Progress, Scheme, UsageError
from model_optimizer.core.paths import Chain, Order, choose
from model_optimizer.core.protocols import Tool
from model_optimizer.system.making import Bench, follow

NARROW_BITS = 8


def plan(order: Order, tools: Mapping[str, Tool], schemes: Mapping[str, Scheme]) -> Chain:
    """The tools that make the order's scheme. Raises UsageError with what can be made instead."""
    if schemes[order.scheme].weight_bits > NARROW_BITS:
        raise UsageError(
            f"`{order.scheme}` is not a quantization",
            hint=("`mopt convert MODEL --to FORMAT` makes it in another format",),
        )
    return choose(order, tools)


def quantize(chain: Chain, source: Artifact, out: Path, bench: Bench, progress: Progress) -> Artifact:
    """Carry out what was planned. Raises ToolError, and HostError when the disk is full."""
    return follow(chain, source, out, bench, progress)

"""The stage: another format, the same numbers, or 32-bit ones, which hold any float exactly."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from model_optimizer.core import Artifact, Progress
from model_optimizer.core.paths import Chain, Order, chains, choose
from model_optimizer.core.protocols import Tool
from model_optimizer.system.making import Bench, follow

WIDEST = "fp32"


def plan(order: Order, tools: Mapping[str, Tool], *, scheme: str | None = None) -> Chain:
    """The tools that make one of the order's formats: in `scheme`, else in the source's, else in 32 bits.

    Raises UsageError with what can be made instead.
    """
    if scheme is None:
        kept = replace(order, scheme=order.source.scheme)
        scheme = kept.scheme if chains(kept, tools) else WIDEST
    return choose(replace(order, scheme=scheme), tools)


def convert(chain: Chain, source: Artifact, out: Path, bench: Bench, progress: Progress) -> Artifact:
    """Carry out what was planned. Raises ToolError, and HostError when the disk is full."""
    return follow(chain, source, out, bench, progress)

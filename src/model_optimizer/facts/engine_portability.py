"""Where a built engine runs: with which versions of its library, on which GPUs. Rules in tensorrt_rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.facts.versions import key, numbers

RTX = "tensorrt_rtx"
AMPERE = (8, 0)
ACROSS: Mapping[int, int] = {8: 10, 10: 11}
"""The next major version that runs a version-compatible engine of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltFor:
    """What the record of an engine says. `compute_capabilities` () where it is not bound to any; `device` is
    the GPU that it was built on, None for TensorRT for RTX, which needs none."""

    library: str
    version: str
    compute_capabilities: tuple[str, ...] = ()
    device: str | None = None
    version_compatible: bool = False
    hardware_compatible: bool = False


def version_conflict(built: BuiltFor, have: str) -> str | None:
    """Why this version of the library does not run the engine; None where it does."""
    if _same(built.version, have):
        return None
    if built.library == RTX:
        return "an engine of TensorRT for RTX runs with the version that built it, and no other"
    if not built.version_compatible:
        return "it was not built version-compatible, so only the version that built it runs it"
    if key(have) < key(built.version):
        return "a version-compatible engine runs with later versions, not with earlier ones"
    begin, end = numbers(built.version)[0], numbers(have)[0]
    if begin != end and ACROSS.get(begin) != end:
        return f"no version {end} of TensorRT runs version-compatible engines of version {begin}"
    return None


def device_conflict(built: BuiltFor, have: Sequence[tuple[int, int]]) -> str | None:
    """Why none of these GPUs, by their compute capabilities, runs the engine; None where one does.

    Nothing is known without a capability on either side.
    """
    if not have:
        return None
    if built.hardware_compatible:
        if any(capability >= AMPERE for capability in have):
            return None
        return "a hardware-compatible engine runs from compute capability 8.0 on"
    bound = {_pair(text) for text in built.compute_capabilities}
    if not bound or bound & set(have):
        return None
    return f"it was built for compute capability {', '.join(built.compute_capabilities)}"


def _same(one: str, other: str) -> bool:
    """Whether they agree as far as both go: 11.4.0 is 11.4.0.106."""
    a, b = numbers(one), numbers(other)
    shared = min(len(a), len(b))
    return a[:shared] == b[:shared]


def _pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)

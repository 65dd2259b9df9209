"""Which number format a GPU multiplies, and how vLLM runs a checkpoint of it. One TOML file a format.

`native`: the GPU computes in the format. `weight-only`: weights stay small in memory and are expanded to
16 bits for the computation. `no`: it does not load.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

Support = Literal["native", "weight-only", "no", "unknown"]
Capability = tuple[int, int]

_FOLDER = read.ROOT / "compatibility" / "formats"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSupport(Fact):
    """From release `since` on. None means never; `native_until` is the last that computes in it.

    `plugin` is the package that the format moved to.
    """

    since: str
    weight_only_from: Capability | None = None
    native_from: Capability | None = None
    native_until: Capability | None = None
    plugin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFact(Fact):
    """A format of weights, activations or KV cache. `hardware_from` is the first compute capability
    whose tensor cores take it, None where there is none or it was not found; `hardware_not_on` are
    later ones that do not."""

    name: str
    title: str
    kind: Literal["weights", "weights and activations", "kv cache", "activations"]
    hardware_from: Capability | None = None
    hardware_not_on: tuple[Capability, ...] = ()
    vllm: tuple[VllmSupport, ...] = ()

    def in_vllm(self, version: str | None = None) -> VllmSupport | None:
        """The row that holds for a release (the newest when None); None before the first one."""
        rows = [row for row in self.vllm if version is None or key(row.since) <= key(version)]
        return max(rows, key=lambda row: key(row.since), default=None)


@cache
def names() -> tuple[str, ...]:
    """The known formats, sorted; opens no file."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def find(name: str) -> FormatFact:
    """One format; `int4-awq` and `awq_int4` style spellings need the name that `names` lists."""
    wanted = name.strip().lower().replace("-", "_")
    if wanted not in names():
        raise UsageError(f"there is no format `{name}` in the facts", hint=(f"known: {', '.join(names())}",))
    return read.toml(_FOLDER / f"{wanted}.toml", FormatFact)


def support(name: str, compute_capability: Capability, *, vllm: str | None = None) -> Support:
    """How vLLM runs a format on a GPU; `unknown` for releases before the first row of the format."""
    fact = find(name)
    row = fact.in_vllm(vllm)
    if row is None:
        return "unknown"
    last = row.native_until or compute_capability
    able = row.native_from is not None and row.native_from <= compute_capability <= last
    if able and compute_capability not in fact.hardware_not_on:
        return "native"
    if row.weight_only_from is not None and compute_capability >= row.weight_only_from:
        return "weight-only"
    return "no"


def table(*, vllm: str | None = None) -> tuple[FormatFact, ...]:
    """All formats, with only the rows that hold for a release."""
    found = (find(name) for name in names())
    return tuple(replace(f, vllm=tuple(r for r in (f.in_vllm(vllm),) if r)) for f in found)

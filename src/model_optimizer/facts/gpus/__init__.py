"""GPUs by name. One TOML file a GPU in this folder; its first paragraph holds what names are matched with.

The rule for names, in this order:

1. the full name, or one of the aliases (which include what the driver calls it): that GPU;
2. a family name such as `h100` whose common part says so in `default_for`: that part, and the match
   tells which other parts it could have been;
3. a full name with the size or kind of memory left out or added: that GPU, if there is only one;
4. words that fit one GPU only (`4060 laptop`, `gb10`): that GPU;
5. words that fit several (`4060`, `a100`): UsageError with the candidates. None: the nearest names.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

from .names import core, words

Number = Literal["bf16", "fp8", "int8", "fp4"]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseTflops:
    """Peak of the tensor cores without sparsity, in 10^12 operations a second (TOPS for int8).

    `bf16` is the rate of 16-bit inputs, FP16 or BF16, with 32-bit accumulation, and `fp8` that of FP8
    with 32-bit accumulation: what inference engines use. GeForce parts run twice as fast with 16-bit
    accumulation: `fp16_accumulate_16` and `fp8_accumulate_16`. Without tensor cores it is the peak of the
    CUDA cores, which compute 16-bit numbers in FP32.
    """

    bf16: float | None = None
    fp16_accumulate_16: float | None = None
    fp8: float | None = None
    fp8_accumulate_16: float | None = None
    int8: float | None = None
    fp4: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFact(Fact):
    """One GPU as it is sold. Sizes are nominal: what the driver offers is a little less.

    `memory_bytes` counts in binary units, as memory is built. `visible_memory_bytes` is what CUDA
    reports as the total, where that was seen in a log. `shared_memory` is True where the CPU uses the
    same memory. `nvlink_bytes_per_s` is the sum of both directions, 0 without NVLink. `tdp_range_w`
    holds the limits that makers of laptops and boards choose from. `hardware_formats` are the formats
    beyond FP16 that the tensor cores multiply. `unsupported` says why no engine here runs on it.
    """

    name: str
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    memory_bytes: int
    memory_kind: str
    visible_memory_bytes: int | None = None
    shared_memory: bool = False
    vendor: str = "NVIDIA"
    architecture: str
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    cuda_cores: int | None = None
    bandwidth_bytes_per_s: int
    l2_bytes: int | None = None
    hardware_formats: tuple[str, ...] = ()
    tdp_w: int | None = None
    tdp_range_w: tuple[int, int] | None = None
    nvlink_bytes_per_s: int | None = None
    pcie: str | None = None
    unsupported: str | None = None
    dense_tflops: DenseTflops = field(default_factory=DenseTflops)

    def peak_per_s(self, number: Number) -> float | None:
        """Operations a second at the peak of a number format; None when it is not known."""
        tflops = {
            "bf16": self.dense_tflops.bf16,
            "fp8": self.dense_tflops.fp8,
            "int8": self.dense_tflops.int8,
            "fp4": self.dense_tflops.fp4,
        }[number]
        return None if tflops is None else tflops * 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMatch:
    """`because` is set when the name did not decide alone, and `others` are what it could have been."""

    asked: str
    fact: GpuFact
    because: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    name: str
    memory_bytes: int
    memory_kind: str
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()

    def spellings(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(words(text)) for text in (self.name, *self.aliases))

    def fits(self, wanted: frozenset[str]) -> bool:
        """True when one of its spellings, with size and kind of memory, holds all the words."""
        size = f"{round(self.memory_bytes / 2**30)}gb"
        memory = frozenset({size, *words(self.memory_kind)})
        return any(wanted <= spelling | memory for spelling in self.spellings())

    def has_core(self, wanted: frozenset[str]) -> bool:
        """True when only the words about memory tell the name and the wanted one apart."""
        return any(core(wanted) == core(spelling) for spelling in self.spellings())

    def is_default_for(self, wanted: frozenset[str]) -> bool:
        return any(core(wanted) == frozenset(words(family)) for family in self.default_for)


def find(name: str) -> GpuFact:
    """The GPU of that name. UsageError when there is none or more than one; see `match`."""
    return match(name).fact


def match(name: str) -> GpuMatch:
    """The GPU of that name, and how the name was understood (the rule stands at the top of this file)."""
    wanted = frozenset(words(name))
    known = _identities()
    near = {path: one for path, one in known.items() if one.fits(wanted)} if wanted else {}
    exact = [path for path, one in known.items() if wanted in one.spellings()]
    if len(exact) == 1:
        return GpuMatch(asked=name, fact=_load(exact[0]))
    common = [path for path, one in near.items() if one.is_default_for(wanted)]
    if len(common) == 1:
        return _default(name, common[0], near)
    for pick in ([path for path, one in near.items() if one.has_core(wanted)], [*near]):
        if len(pick) == 1:
            return GpuMatch(asked=name, fact=_load(pick[0]))
    raise _ambiguous(name, near) if near else _unknown(name)


def part(fact: GpuFact, share: float) -> GpuFact:
    """The same card with a share of its bandwidth, cores and peaks: what a MIG instance of that size has."""
    if share >= 1:
        return fact
    peaks = {
        one.name: value * share
        for one in fields(DenseTflops)
        if (value := getattr(fact.dense_tflops, one.name)) is not None
    }
    return replace(
        fact,
        bandwidth_bytes_per_s=int(fact.bandwidth_bytes_per_s * share),
        tdp_w=fact.tdp_w and max(1, round(fact.tdp_w * share)),
        nvlink_bytes_per_s=0,
        dense_tflops=DenseTflops(**peaks),
    )


def names() -> tuple[str, ...]:
    """The names of all GPUs, sorted; reads only the first paragraph of each file."""
    return tuple(sorted(one.name for one in _identities().values()))


def load_all() -> tuple[GpuFact, ...]:
    """All GPUs, sorted by compute capability and name."""
    found = [_load(path) for path in _identities()]
    return tuple(sorted(found, key=lambda g: (g.compute_capability or (0, 0), g.name)))


def _default(name: str, path: Path, near: dict[Path, _Identity]) -> GpuMatch:
    fact = _load(path)
    others = tuple(sorted(one.name for key, one in near.items() if key != path))
    because = f"`{name}` names a family; {fact.name} is the part meant unless another is named"
    return GpuMatch(asked=name, fact=fact, because=because if others else None, others=others)


def _ambiguous(name: str, near: dict[Path, _Identity]) -> UsageError:
    candidates = sorted(one.name for one in near.values())
    return UsageError(
        f"`{name}` fits {len(candidates)} GPUs",
        cause=tuple(candidates),
        hint=("add the word that decides, for example the form (SXM, PCIe, laptop) or the memory (80GB)",),
    )


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    spelled = {" ".join(words(n)): n for n in names()}
    wanted = words(name)
    numbers = [w for w in wanted if any(c.isdigit() for c in w)]
    nearest = [known for known in spelled if any(number in known for number in numbers)][:4]
    # A slip in the number of a part: `h101` is nearer to all H100 than to an A10.
    known_numbers = {w for known in spelled for w in known.split() if any(c.isdigit() for c in w)}
    close = get_close_matches(numbers[0], sorted(known_numbers), n=1, cutoff=0.7) if numbers else []
    nearest = nearest or [known for known in spelled if set(close) & set(known.split())][:4]
    nearest = nearest or get_close_matches(" ".join(wanted), spelled, n=3, cutoff=0.5)
    hint = [f"nearest: {', '.join(spelled[n] for n in nearest)}"] if nearest else []
    return UsageError(
        f"there is no GPU `{name}` in the facts",
        hint=(*hint, "`mopt facts gpu` lists them all"),
    )


@cache
def _identities() -> dict[Path, _Identity]:
    return {path: read.toml_head(path, _Identity) for path in sorted(_FOLDER.glob("*.toml"))}


def _load(path: Path) -> GpuFact:
    return read.toml(path, GpuFact)

"""vLLM releases: what each needs, its defaults, its flags and metrics. One TOML file a release."""

from dataclasses import dataclass, field, replace
from functools import cache

from model_optimizer.core import UsageError
from model_optimizer.facts import read, releases
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FOLDER = read.ROOT / "compatibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The container image. `compute_capabilities` are those with code of their own; with `ptx` the last
    of them also runs on newer GPUs. Values are the defaults of the release's Dockerfile."""

    name: str
    cuda: str | None = None
    ubuntu: str | None = None
    compute_capabilities: tuple[tuple[int, int], ...] | None = None
    ptx: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the engine does when it is told nothing. None: not found for this release."""

    gpu_memory_utilization: float
    block_size: int
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    kv_cache_dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTier:
    """Batch limits for GPUs with at least this much memory whose name holds none of `not_for`.

    `max_num_batched_tokens` is that of the server, `max_num_batched_tokens_offline` that of the
    Python class `LLM`.
    """

    minimum_memory_bytes: int
    not_for: tuple[str, ...] = ()
    max_num_batched_tokens: int
    max_num_batched_tokens_offline: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRelease(Fact):
    """One release. `minimum_driver_linux` is by the rule of minor version compatibility.

    `compressed_tensors` is the version that it pins, None when it was not read.
    `asked` is the version that was asked for; `exact` is False when this is only the nearest known one.
    """

    version: str
    date: str
    python: str
    torch: str
    transformers: str
    compressed_tensors: str | None = None
    flashinfer: str | None = None
    cuda: str
    cuda_library: str
    minimum_driver_linux: str
    minimum_compute_capability: tuple[int, int]
    changes: tuple[str, ...] = ()
    image: Image
    defaults: Defaults
    batch: tuple[BatchTier, ...] = ()
    asked: str | None = None
    exact: bool = True

    def batch_for(self, *, memory_bytes: int, gpu: str) -> BatchTier:
        """The batch limits of a GPU, by its memory and name. Tiers stand from large to small."""
        for tier in self.batch:
            if memory_bytes >= tier.minimum_memory_bytes and not any(n in gpu for n in tier.not_for):
                return tier
        raise UsageError(f"vLLM {self.version} has no batch limits for {gpu} in the facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFact(Fact):
    """A command line option. `until` is the last release inspected that has it, None when it is current.

    `since` is None when the oldest release inspected (0.8.5) has it.
    """

    flag: str
    since: str | None = None
    until: str | None = None
    use_instead: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFact(Fact):
    """A name on `/metrics`, and what it stands for. `until` as for flags."""

    metric: str
    means: str
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFact(Fact):
    """Something that people get wrong, in one sentence."""

    subject: str
    note: str = field(default="")


@cache
def release(version: str) -> VllmRelease:
    """The release of that number, else the nearest known one with `exact` False.

    UsageError when the number is older than every known release.
    """
    found = read.toml(releases.choose("vLLM", version, releases.paths("vllm")), VllmRelease)
    return replace(found, asked=version, exact=key(found.version) == key(version))


@cache
def versions() -> tuple[str, ...]:
    """The known releases, oldest first; opens no file."""
    return tuple(releases.paths("vllm"))


@cache
def flags() -> tuple[FlagFact, ...]:
    """The options whose history is known."""
    return read.toml_rows(_FOLDER / "vllm_flags.toml", "flag", FlagFact)


def flag(name: str) -> FlagFact | None:
    """One option, for example `--swap-space`; None when nothing is known of it."""
    return _by_name().get(name)


def take(version: str, name: str, *, otherwise: str | None = None) -> str:
    """The option, when this release is known to take it. UsageError otherwise, with what to do instead."""
    fact = flag(name)
    if fact is None:
        raise UsageError(
            f"the option `{name}` of vLLM is not in the facts", hint=("`mopt facts vllm` lists them",)
        )
    early = fact.since is not None and key(version) < key(fact.since)
    late = fact.until is not None and (fact.until.startswith("before") or key(version) > key(fact.until))
    if early or late:
        when = f"it came with {fact.since}" if early else f"its last release was {fact.until}"
        own = f"use {fact.use_instead}" if fact.use_instead else None
        hint = tuple(one for one in (own, otherwise) if one)
        raise UsageError(f"vLLM {version} does not take `{name}`", cause=(when,), hint=hint)
    return name


def takes(version: str, name: str) -> bool:
    try:
        take(version, name)
    except UsageError:
        return False
    return True


@cache
def _by_name() -> dict[str, FlagFact]:
    return {row.flag: row for row in flags()}


@cache
def metrics() -> tuple[MetricFact, ...]:
    """The metrics whose history is known."""
    return read.toml_rows(_FOLDER / "vllm_metrics.toml", "metric", MetricFact)


@cache
def notes() -> tuple[NoteFact, ...]:
    """What holds for all releases."""
    return read.toml_rows(_FOLDER / "vllm_notes.toml", "note", NoteFact)

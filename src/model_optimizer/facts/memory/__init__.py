"""How engines account for GPU memory: one TOML file for each vLLM release that changed it.

A file in `vllm/` holds from its release on, until the next one. `contexts.toml` has what CUDA and the
engine's libraries take outside of PyTorch, as it was seen, and what the driver keeps of a card's memory.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.versions import key

Accounting = Literal["reserved", "context", "snapshot", "consumed"]
Capability = tuple[int, int]

_FOLDER = read.ROOT / "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the engine says when it will not start, with places for numbers."""

    no_memory: str
    too_long: str
    not_free: str | None = None
    estimated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmMemory(Fact):
    """The rules from release `since` on.

    `v1_from` is the first compute capability on which the V1 engine is the default; None: everywhere,
    and `engine` says which engine this row is about where there is only one.

    `accounting` is what counts as used before the KV cache gets the rest: `reserved` all that CUDA
    reports in use, unused blocks of the allocator among it; `context` the peak of PyTorch and everything
    else in use on the card; `snapshot` what was added since the worker started; `consumed` the same as
    CUDA reports it, buffers of the runner among it. `v0_accounting` is that of the V0 engine.

    `v2_runner`: which models run on model runner V2 (`listed` architectures, `dense` models and the
    listed ones, `all`). `bytes_per_logit` is what the profiled sampler of runner V1 holds at its peak
    for each logit, `v2_bytes_per_logit` that of V2, `v0_bytes_per_logit` that of engine V0.

    `graphs_counted`: the runners whose CUDA graphs are subtracted from the KV cache. `capture_step` is
    the distance of capture sizes above 256. `compile_copies_embedding`: while compiling, a kernel that
    reads the embedding is timed on a random table of its size. `hybrid_groups`: layers with a window
    keep only their window. `kv_line` is how the line "GPU KV cache size" counts: `blocks` x block size,
    blocks of one of several `groups`, or `concurrency` x longest length. `profiles_encoder`: the runners
    that also run the encoder of images.
    """

    since: str
    engine: Literal["V0", "V1"] = "V1"
    v1_from: Capability | None = None
    accounting: Accounting
    v0_accounting: Accounting = "snapshot"
    communication_counted: bool = False
    v2_runner: Literal["never", "listed", "dense", "all"] = "never"
    v2_architectures: tuple[str, ...] = ()
    v2_quantized: bool = True
    sampler: Literal["sort", "triton", "flashinfer"] = "sort"
    bytes_per_logit: int = 38
    v2_bytes_per_logit: int = 6
    v0_bytes_per_logit: int = 38
    graphs_counted: tuple[Literal["V1", "V2"], ...] = ()
    capture_step: int = 16
    compile_copies_embedding: bool = False
    hybrid_groups: bool = True
    kv_line: Literal["blocks", "groups", "concurrency"] = "concurrency"
    profiles_encoder: tuple[Literal["V1", "V2"], ...] = ("V1",)
    v0_chunk_tokens: int = 2048
    texts: Texts
    v0_texts: Texts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy(Fact):
    """Defaults of releases older than those in `facts.vllm`, all alike."""

    gpu_memory_utilization: float
    block_size: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Fact):
    """Bytes outside of PyTorch as seen on one GPU with one release.

    `kind`: `before` is what CUDA takes before the engine measures for the first time, `growth` what is
    added until the profiling run ends, `whole` both together, `communication` the buffers of NCCL and
    of the custom all-reduce on each GPU.
    """

    kind: Literal["before", "growth", "whole", "communication"]
    compute_capability: Capability
    vllm: str
    bytes: int
    gpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(Fact):
    """Bytes that PyTorch gives cuBLAS for work, from this compute capability on."""

    since_capability: Capability
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible(Fact):
    """The share of a card's nominal memory that CUDA shows, where it was not seen for that card.

    `kind` is how the kind of memory begins; `gpus` are names that this row is about, () for all others.
    """

    kind: str
    gpus: tuple[str, ...] = ()
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs(Fact):
    """CUDA graphs, from release `since` on: `bytes_per_layer` for each layer and capture size, and
    `pool_share` times what the widest feed-forward layer holds at the largest size."""

    since: str
    bytes_per_layer: int
    pool_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding(Fact):
    """Multiples that widths of packed experts are rounded up to when they are loaded."""

    scheme: str
    since_capability: Capability
    hidden: int
    intermediate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row that was looked up for a GPU and release; `exact` is False when it is another's."""

    context: Context
    exact: bool = field(default=True)


@cache
def vllm(version: str) -> VllmMemory:
    """The rules of a release. UsageError when it is older than all of them."""
    rows = {path.stem: path for path in (_FOLDER / "vllm").glob("*.toml")}
    before = [since for since in rows if key(since) <= key(version)]
    if not before:
        oldest = min(rows, key=key)
        raise UsageError(
            f"how vLLM {version} accounts for memory is not known", hint=(f"known from {oldest} on",)
        )
    return read.toml(rows[max(before, key=key)], VllmMemory)


def context(
    kind: Literal["before", "growth", "whole", "communication"], capability: Capability, version: str
) -> Found | None:
    """The nearest row: the same compute capability first, then the nearest one, then the nearest release."""
    rows = [row for row in _tables().context if row.kind == kind]
    if not rows:
        return None
    wanted = capability[0] * 10 + capability[1]

    def far(row: Context) -> tuple[int, int]:
        there = row.compute_capability[0] * 10 + row.compute_capability[1]
        return abs(there - wanted), _releases_apart(row.vllm, version)

    best = min(rows, key=far)
    same = best.compute_capability == capability and _releases_apart(best.vllm, version) <= 3
    return Found(context=best, exact=same)


def workspace(capability: Capability) -> Workspace:
    """What cuBLAS gets on a GPU of this compute capability."""
    rows = [row for row in _tables().workspace if row.since_capability <= capability]
    return max(rows, key=lambda row: row.since_capability)


def graphs(version: str) -> Graphs:
    """The law of the memory of CUDA graphs that holds for a release."""
    rows = [row for row in _tables().graphs if key(row.since) <= key(version)]
    return max(rows, key=lambda row: key(row.since))


def legacy() -> Legacy:
    """Defaults of the oldest releases."""
    return _tables().legacy[0]


def padding(scheme: str, capability: Capability) -> Padding | None:
    """How experts of a scheme are padded; None when they are not."""
    rows = [r for r in _tables().padding if r.scheme == scheme and r.since_capability <= capability]
    return max(rows, key=lambda row: row.since_capability, default=None)


def visible(gpu: GpuFact) -> tuple[int, Visible | None]:
    """What CUDA shows of a card's memory, and the row it was derived with; None where it was seen."""
    if gpu.visible_memory_bytes is not None:
        return gpu.visible_memory_bytes, None
    rows = [r for r in _tables().visible if gpu.memory_kind.upper().startswith(r.kind)]
    named = [r for r in rows if gpu.name in r.gpus]
    row = (named or [r for r in rows if not r.gpus] or list(_tables().visible))[0]
    return round(gpu.memory_bytes * row.share), row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    context: tuple[Context, ...]
    workspace: tuple[Workspace, ...]
    graphs: tuple[Graphs, ...]
    legacy: tuple[Legacy, ...]
    padding: tuple[Padding, ...]
    visible: tuple[Visible, ...]


@cache
def _tables() -> _Tables:
    return read.toml(_FOLDER / "contexts.toml", _Tables)


def _releases_apart(one: str, other: str) -> int:
    """Minor releases between two versions of vLLM."""
    first, second = key(one)[0], key(other)[0]
    return abs(first[0] * 100 + first[1] - second[0] * 100 - second[1])

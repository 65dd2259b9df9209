"""How fast kernels run beside the peaks of a GPU, and what an engine adds to each step.

`kernels/<generation>.toml` holds a few constants a GPU generation and number format, fitted to measured
kernel times; `engines/<engine>.toml` holds what the engine's own work costs, by release. Each file says what
it was fitted on, and evidence/speed-model/ holds the rows and the errors. Formulas stand in planner/speed/.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FOLDER = read.ROOT / "speed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kind of matrix product. `bandwidth` and `compute` are shares of the GPU's peaks that it reaches.

    `blend` is how memory and computation overlap: 1 means one after the other, a large number that only
    the longer one counts. `spread` is how evenly tokens fall on the experts of a mixture, 1 being even.
    `error` is the median of |log(predicted / measured)| of the fit.
    """

    launch_us: float
    bandwidth: float
    compute: float
    blend: float
    spread: float = 1.0
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """Reads the KV cache of a batch, one new token a sequence."""

    launch_us: float
    per_sequence_us: float
    bandwidth: float
    blend: float = 1.0
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillAttention:
    """`pad_tokens` is the work that every query token does beside its own keys."""

    launch_us: float
    compute: float
    pad_tokens: float
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """`bandwidth` is a share of what the link moves in one direction."""

    launch_us: float
    bandwidth: float
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Fact):
    """The kernels of one GPU generation, by number format; `all_reduce` by number of GPUs.

    `watts_per_tflops` is the power limit of the GPU that was measured over its 16-bit peak.
    `borrowed` says from where, when nothing was measured on this generation.
    """

    generation: str
    compute_capability: tuple[int, int]
    measured_on: str
    watts_per_tflops: float
    borrowed: str | None = None
    gemm: Mapping[str, Kernel]
    moe: Mapping[str, Kernel] = field(default_factory=dict[str, Kernel])
    decode_attention: Mapping[str, DecodeAttention]
    prefill_attention: Mapping[str, PrefillAttention]
    all_reduce: Mapping[str, AllReduce] = field(default_factory=dict[str, AllReduce])


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead(Fact):
    """What an engine adds to the work of the GPU, from release `since` on.

    Between two steps the GPU waits `gap_ms`. A step costs the host `step_ms`, and `sequence_us` for each
    sequence in it; with `overlap` the host does that while the GPU computes the step before, so that only
    the longer of the two counts. `captured_tokens` is the largest batch that CUDA graphs cover; a larger one
    costs the host `layer_us` a layer, and without graphs (`--enforce-eager`) each costs `eager_layer_us`. A
    request costs `frontend_ms` and `frontend_token_us` a prompt token before the engine sees it. `mixed` and
    `reserve` are rules of its scheduler: whether prompts are computed together with decoding, and for which
    share of the tokens to come room must be free before a prompt starts.
    """

    since: str
    gap_ms: float
    step_ms: float
    sequence_us: float
    overlap: bool
    captured_tokens: int
    layer_us: float
    eager_layer_us: float
    frontend_ms: float
    frontend_token_us: float
    mixed: bool = True
    reserve: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpeed(Fact):
    """All releases of an engine, oldest first. `assumed` is said on screens when nothing was measured.

    From `whole_prompts_since` on, a prompt starts only when all of it has room in the KV cache; before, its
    first chunk was enough. None: always all of it. `free_memory_share` is the share of what is free once
    weights are loaded that becomes KV cache; None where the engine takes a share of the whole card.
    """

    engine: str
    assumed: str | None = None
    whole_prompts_since: str | None = None
    free_memory_share: float | None = None
    release: tuple[Overhead, ...]

    def at(self, version: str | None) -> Overhead:
        """The row that holds for a release; the newest when None, the oldest for one before it."""
        if version is None:
            return self.release[-1]
        rows = [row for row in self.release if key(row.since) <= key(version)]
        return rows[-1] if rows else self.release[0]

    def whole_prompts(self, version: str | None) -> bool:
        """Whether a prompt of a release waits until all of it fits; the newest when None."""
        since = self.whole_prompts_since
        return since is None or version is None or key(version) >= key(since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(Fact):
    """Constants that hold for all generations, fitted to servers and not to kernels.

    `sustained` is the share of a kernel's measured rate of computation that is left under a server's steady
    load. A GPU with more power for its peak than the one of its generation that was measured reaches a larger
    share of it, by the root of the ratio of both, up to `compute_ceiling`. `weight_only_*` are the rate and
    the bandwidth of 16-bit products whose weights are expanded on the fly, as shares of those of plain 16-bit
    products. `pass_us` is the time of one elementwise kernel in a CUDA graph, `passes` how many a layer has,
    `pass_bandwidth` the share of the peak that they reach. `frontend_busy_ms` is the time in which the server
    in front of an engine (one Python process) reads a request and can do nothing else.

    Five say what a calibrated machine is compared with: without graphs a layer costs the host as much as
    `layer_launches` launches, `piece_launches` where it is compiled in pieces, `pooled_launches` where a
    runner of embedding models does it; and `pass_us` and `pass_bandwidth` hold where a small kernel in a
    graph takes `reference_launch_us` and copies reach `reference_copy` of the bandwidth.
    """

    sustained: float
    compute_ceiling: float
    weight_only_compute: float
    weight_only_bandwidth: float
    weight_only_launch_us: float
    passes: float
    pass_us: float
    pass_bandwidth: float
    frontend_busy_ms: float
    layer_launches: float
    piece_launches: float
    pooled_launches: float
    reference_launch_us: float
    reference_copy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCard:
    """An architecture on which llama.cpp reaches another share of the bandwidth."""

    architecture: str
    gpu_bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCpp(Fact):
    """llama.cpp's rates. Shares of the GPU's peaks: `few_compute` (of 8-bit integers) up to `few_sequences`
    tokens a step, `many_compute` above, `float_compute` (of 16 bits) for weights that are not quantized.

    From `offload_from` tokens a step on, layers in host memory are copied to the GPU and computed there where
    that is faster. A step computes at most `micro_batch` tokens. `host_*` are of the CPU and its memory;
    `clock_hz` stands for cards whose peak is not in the facts: two operations a core and clock.
    `cards` differ in the bandwidth.
    """

    gpu_bandwidth: float
    few_sequences: int
    few_compute: float
    many_compute: float
    float_compute: float
    gap_ms: float
    micro_batch: int
    offload_from: int
    clock_hz: float
    host_bytes_per_s: float
    host_bandwidth: float
    host_flops: float
    cards: tuple[LlamaCard, ...] = ()

    def bandwidth_on(self, architecture: str) -> float:
        """The share of the bandwidth that is reached there."""
        found = (one.gpu_bandwidth for one in self.cards if one.architecture == architecture)
        return next(found, self.gpu_bandwidth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Fact):
    """The half-width of an 80 % interval, as |log(predicted / measured)|, by quantity.

    `kind` is where the steps come from: `measured`, `tables`, `roofline` (this generation was measured),
    `roofline-borrowed`, `other-engine` than vLLM, `llama.cpp`. `burst` is of loads that arrive at once.
    `points` is how many measurements were compared.
    """

    kind: str
    tpot: float
    throughput: float
    ttft: float
    burst_tpot: float
    burst_throughput: float
    points: int


@cache
def generation(compute_capability: tuple[int, int]) -> Generation:
    """The kernels of a GPU, else those of the nearest generation that came before it, marked as borrowed."""
    known = {read.toml_head(path, _Identity).compute_capability: path for path in _kernel_files()}
    if compute_capability in known:
        return read.toml(known[compute_capability], Generation)
    before = [c for c in known if c <= compute_capability]
    found = read.toml(known[max(before, default=min(known))], Generation)
    return replace(found, borrowed=found.borrowed or found.measured_on)


@cache
def engine(name: str) -> EngineSpeed:
    """What an engine adds. UsageError lists the engines that are known."""
    path = _FOLDER / "engines" / f"{name}.toml"
    if not name.isidentifier() or not path.is_file():
        known = ", ".join((*engines(), "llama.cpp"))
        raise UsageError(f"there is no speed of the engine `{name}` in the facts", hint=(f"known: {known}",))
    return read.toml(path, EngineSpeed)


@cache
def engines() -> tuple[str, ...]:
    """The engines whose own cost is known, sorted; opens no file."""
    return tuple(sorted(path.stem for path in (_FOLDER / "engines").glob("*.toml")))


@cache
def shared() -> Shared:
    return read.toml(_FOLDER / "shared.toml", Shared)


@cache
def llama_cpp() -> LlamaCpp:
    return read.toml(_FOLDER / "llama_cpp.toml", LlamaCpp)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow(Fact):
    """A GPU whose kernel times aiconfigurator-core holds: `system` is its name there, the engines' fields
    are the releases that were measured, `schemes` those of ours that have tables."""

    gpu: str
    system: str
    vllm: str | None = None
    sglang: str | None = None
    tensorrt_llm: str | None = None
    schemes: tuple[str, ...]

    def version(self, engine: str) -> str | None:
        """The release of an engine that was measured."""
        return {"vllm": self.vllm, "sglang": self.sglang, "tensorrt_llm": self.tensorrt_llm}.get(engine)


@cache
def table_of(gpu: str) -> TableRow | None:
    """The row of a GPU by its full name; None when it has no tables."""
    rows = read.toml_rows(_FOLDER / "tables.toml", "table", TableRow)
    return next((row for row in rows if row.gpu == gpu), None)


@cache
def accuracy(kind: str) -> Accuracy:
    """How wrong predictions of a kind were on servers that no constant was fitted to."""
    rows = read.toml_rows(_FOLDER / "accuracy.toml", "accuracy", Accuracy)
    return next(row for row in rows if row.kind == kind)


def _kernel_files() -> tuple[Path, ...]:
    return tuple(sorted((_FOLDER / "kernels").glob("*.toml")))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    compute_capability: tuple[int, int]

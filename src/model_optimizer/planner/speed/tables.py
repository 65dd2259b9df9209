"""The time of a step from a grid of kernel times that others measured, with the engine's own cost added."""

from bisect import bisect_right
from dataclasses import dataclass, field
from math import exp, log

from model_optimizer.core.grid import GridRequest, StepGrid
from model_optimizer.core.steps import Batch, StepTime
from model_optimizer.facts import speed
from model_optimizer.facts.speed import Overhead
from model_optimizer.facts.versions import minor

from .roofline import COMPUTE, LAUNCH, MEMORY, MICRO, NETWORK
from .setup import Setup

MODES = {"bf16": "bfloat16", "fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
# From about this many tokens on a step is computation, which runs slower under a steady load.
COMPUTED = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why there are no tables for a setup."""

    because: str


def request(setup: Setup) -> GridRequest | Refused:
    """What to ask the tables for a setup, or why they have no answer."""
    row = speed.table_of(setup.gpu.name)
    if row is None:
        return Refused(because=f"no kernel of {setup.gpu.name} was measured")
    version = row.version(setup.engine)
    if version is None:
        return Refused(because=f"no kernel of {setup.engine} was measured on {setup.gpu.name}")
    scheme = setup.scheme.name
    if scheme == "mxfp4" and setup.model.experts:
        scheme = "bf16"
    if scheme not in row.schemes:
        return Refused(because=f"no kernel of `{setup.scheme.name}` was measured on {setup.gpu.name}")
    if scheme == "fp8_block" and setup.engine == "vllm":
        return Refused(because="the times of FP8 blocks in vLLM hold the host's launches, which graphs hide")
    if setup.pipeline_parallel > 1 or setup.eager:
        return Refused(because="the tables are of one pipeline stage with CUDA graphs")
    if setup.model.config is None or setup.model.task != "generate":
        return Refused(because="the tables are of language models whose config.json is at hand")
    return GridRequest(
        model=setup.model.name,
        config=setup.model.config,
        system=row.system,
        engine=setup.engine,
        version=version,
        tensor_parallel=setup.tensor_parallel,
        gemm_mode=MODES[scheme],
        moe_mode=MODES[scheme] if setup.model.experts and setup.scheme.name != "mxfp4" else None,
        kv_mode="fp8" if setup.kv_bits == 8 else "bfloat16",
    )


@dataclass(frozen=True, slots=True)
class Tables:
    """A StepModel. `sustained` is the share of a kernel's rate that is left under a steady load."""

    grid: StepGrid
    host: Overhead
    sustained: float
    kind: str
    provenance: str
    known: dict[tuple[float, float], float] = field(
        default_factory=dict[tuple[float, float], float], repr=False, compare=False
    )
    rows: dict[float, tuple[float, ...]] = field(
        default_factory=dict[float, tuple[float, ...]], repr=False, compare=False
    )

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        whole = tokens * sequences
        return self.mixed_ms(Batch(tokens=whole, chunks=sequences, pairs=whole * (cached + tokens / 2)))

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.mixed_ms(Batch(sequences=sequences, context=context))

    def mixed_ms(self, batch: Batch) -> float:
        device = self._rest(batch) + self._decode(batch) + self._prefill(batch)
        host = self.host.step_ms + batch.rows * self.host.sequence_us * MICRO * 1e3
        return (max(device, host) if self.host.overlap else device + host) + self.host.gap_ms

    def explain(self, batch: Batch) -> StepTime:
        """The tables do not say what a kernel waits for; products of few tokens wait for memory."""
        rest, tokens = self._rest(batch), batch.positions
        parts = {MEMORY: self._decode(batch), COMPUTE: self._prefill(batch), LAUNCH: 0.0, NETWORK: 0.0}
        parts[MEMORY if tokens < COMPUTED / 2 else COMPUTE] += rest
        whole = self.mixed_ms(batch)
        parts[LAUNCH] = max(0.0, whole - sum(parts.values()))
        return StepTime(ms=whole, parts=parts, bound=max(parts, key=lambda name: parts[name]))

    def _rest(self, batch: Batch) -> float:
        place = (batch.positions, batch.rows)
        found = self.known.get(place)
        if found is None:
            tokens, rows = place
            slower = 1 + (1 / self.sustained - 1) * tokens / (tokens + COMPUTED)
            found = _between(self.grid.tokens, self.grid.rest_ms, tokens) * slower
            found += _between(self.grid.tokens, self.grid.head_ms, max(rows, 1))
            self.known[place] = found
        return found

    def _decode(self, batch: Batch) -> float:
        """Attention of the batch: straight between contexts, since it reads every token once."""
        if not batch.sequences:
            return 0.0
        grid, row = self.grid, self.rows.get(batch.sequences)
        if row is None:
            columns = range(len(grid.contexts))
            row = tuple(
                _between(grid.sequences, tuple(line[c] for line in grid.decode_ms), batch.sequences)
                for c in columns
            )
            self.rows[batch.sequences] = row
        low = min(max(bisect_right(grid.contexts, batch.context) - 1, 0), len(row) - 2)
        x0, x1 = grid.contexts[low], grid.contexts[low + 1]
        return row[low] + (row[low + 1] - row[low]) * (max(batch.context, x0) - x0) / (x1 - x0)

    def _prefill(self, batch: Batch) -> float:
        """As many prompts as have the same pairs of query and key."""
        if not batch.tokens:
            return 0.0
        length = max(2 * batch.pairs / batch.tokens, 1.0)
        once = _between(self.grid.prompts, self.grid.prefill_ms, length)
        each = _between(self.grid.prompts, self.grid.prompt_ms, length)
        return (once + each * batch.tokens / length) / self.sustained


def tables(setup: Setup, grid: StepGrid, *, overhead: Overhead | None = None) -> Tables:
    """The model of a setup from its grid."""
    row = speed.table_of(setup.gpu.name)
    measured = row.version(setup.engine) if row else None
    provenance = f"tables: {grid.source}, {grid.measured:.0%} of the time measured there"
    if measured and setup.version and minor(measured) != minor(setup.version):
        provenance += f"; kernels of {measured} stand for those of {setup.version}"
    return Tables(
        grid=grid,
        host=overhead or speed.engine(setup.engine).at(setup.version),
        sustained=speed.shared().sustained,
        kind="tables" if setup.engine == "vllm" else "other-engine",
        provenance=provenance,
    )


def _between(places: tuple[int, ...], values: tuple[float, ...], at: float) -> float:
    """On the straight line between two places in logarithms, or beyond the ends along the last line."""
    low = min(max(bisect_right(places, at) - 1, 0), len(places) - 2)
    if at <= places[0]:
        return values[0]
    return _line(places[low], places[low + 1], values[low], values[low + 1], at)


def _line(x0: float, x1: float, y0: float, y1: float, x: float) -> float:
    if min(y0, y1) <= 0:
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    share = log(max(x, 1e-9) / x0) / log(x1 / x0)
    return exp(log(y0) + (log(y1) - log(y0)) * share)

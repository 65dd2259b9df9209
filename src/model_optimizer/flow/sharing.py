"""Can the servers of several plans stand by each other: what each gets of the memory, or why they cannot.

On a GPU every plan keeps what its weights, its largest step and its graphs take, and a KV cache that holds
the requests of the load; on a CPU the engines' own arithmetic is added up.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from model_optimizer.core import Engine, Fit, Host, ModelSpec, Plan, Scheme, Setting, Workload
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import vllm
from model_optimizer.system import gpu_memory

from .tune import Guide, Loads

SHARE, KV_BYTES = "gpu-memory-utilization", "kv-cache-memory-bytes"
MEMORY = frozenset(
    {SHARE, KV_BYTES, "num-gpu-blocks-override", "kv-offloading-size", "cpu-offload-gb", "swap-space"}
)
"""Settings whose worth is memory."""

KEPT = 0.97
"""So much of a GPU is given away. ASSUMED: the rest is for what no arithmetic sees."""

MARGIN = 1.08
"""More KV cache than the load needs: blocks that are not full, requests that overlap. ASSUMED."""

LOADING = 1.5 * 2**30
"""What a start may hold for a moment beside what it keeps. ASSUMED."""

SPREADS = (3.0, 2.0)
"""Standard deviations of the tokens in flight that a KV cache holds: fewer where more do not fit."""

SAMPLES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """`plans` are those asked for with their share of the memory, `beside` the settings that are new in each.

    With `one_by_one` they must not start at the same time.
    """

    plans: tuple[Plan, ...]
    beside: tuple[Mapping[str, str], ...]
    because: str
    one_by_one: bool = False


Share = Callable[[Sequence[Plan], Sequence[float]], Shares | str]
"""(plans, levels of load) -> shares, or why the plans cannot stand by each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """Plans of vLLM on one GPU. `held` says (bytes in use, bytes in all) at this moment, None if unknown."""

    guide: Guide
    loads: Loads
    total_bytes: int
    held: Callable[[], tuple[int, int] | None] = field(default=gpu_memory.held)

    def __call__(self, plans: Sequence[Plan], levels: Sequence[float]) -> Shares | str:
        found: Shares | str = "no plan was named"
        for spread in SPREADS:
            found = self._shares(plans, levels, spread)
            if isinstance(found, Shares):
                return found
        return found

    def _shares(self, plans: Sequence[Plan], levels: Sequence[float], spread: float) -> Shares | str:
        needs = self.needs(plans, levels, spread)
        if isinstance(needs, str):
            return needs
        held = self.held()
        room = int(KEPT * self.total_bytes) - (held[0] if held else 0)
        wanted = sum(fixed + cache for fixed, cache in needs) + int(LOADING)
        if wanted > room:
            each = ", ".join(f"{show_bytes(f)} + {show_bytes(c)}" for f, c in needs)
            return (
                f"{len(plans)} servers with the KV cache of the load need {show_bytes(wanted)}, "
                f"{show_bytes(room)} are there ({each})"
            )
        version = plans[0].engine_version
        exact = all(vllm.takes(p.engine_version or vllm.versions()[-1], f"--{KV_BYTES}") for p in plans)
        beside = [self._beside(fixed, cache, exact=exact) for fixed, cache in needs]
        return Shares(
            plans=tuple(with_share(plan, new) for plan, new in zip(plans, beside, strict=True)),
            beside=tuple(beside),
            because=(
                f"{len(plans)} servers on one GPU, {show_bytes(wanted)} of {show_bytes(room)}; each has a KV "
                f"cache that holds the load ({', '.join(show_bytes(c) for _, c in needs)})"
            ),
            one_by_one=not exact and version is not None,
        )

    def needs(
        self, plans: Sequence[Plan], levels: Sequence[float], spread: float
    ) -> list[tuple[int, int]] | str:
        """(bytes that it keeps beside its KV cache, bytes of KV cache) of each, or what does not start."""
        made: list[tuple[int, int]] = []
        for plan in plans:
            found = self.guide.fitted(plan)
            if isinstance(found, str):
                return found
            made.append((fixed_bytes(found), cache_bytes(found, plan, self.loads, levels, spread)))
        return made

    def _beside(self, fixed: int, cache: int, *, exact: bool) -> dict[str, str]:
        share = {SHARE: f"{math.ceil((fixed + cache) / self.total_bytes * 1000) / 1000:g}"}
        return share | ({KV_BYTES: str(cache)} if exact else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCpu:
    """Plans of an engine in the memory of the host; nothing of the plans changes."""

    engine: Engine
    model: ModelSpec
    host: Host
    scheme: Callable[[str], Scheme]
    loads: Loads

    def __call__(self, plans: Sequence[Plan], levels: Sequence[float]) -> Shares | str:
        most = max(levels, default=1.0)
        works = [
            dataclasses.replace(work, concurrency=int(most)) if work.qps is None else work
            for _, work in self.loads.workloads
        ]
        wanted = sum(self._need(plan, works) for plan in plans)
        room = self.host.memory_available_bytes
        if room is None:
            return "how much memory is free could not be read"
        if wanted > KEPT * room:
            return f"{len(plans)} servers need {show_bytes(wanted)}, {show_bytes(room)} are free"
        return Shares(
            plans=tuple(plans),
            beside=tuple({} for _ in plans),
            because=f"{len(plans)} servers in {show_bytes(wanted)} of {show_bytes(room)}",
        )

    def _need(self, plan: Plan, works: Sequence[Workload]) -> int:
        scheme = self.scheme(plan.scheme)
        return max(sum(term.bytes for term in self.engine.memory(self.model, scheme, work)) for work in works)


def fixed_bytes(found: Fit) -> int:
    """All that a start keeps beside its KV cache, whether the engine counts it or not."""
    return found.weights_bytes + found.activation_bytes + found.cuda_graph_bytes + found.non_torch_bytes


def cache_bytes(
    found: Fit, plan: Plan, loads: Loads, levels: Sequence[float], spread: float = SPREADS[0]
) -> int:
    """The KV cache that the load needs: what its requests hold when each is at its end, and more where one
    request of the longest kind needs more."""
    at_once = math.inf if loads.workload.qps is not None else max(levels, default=max(loads.levels))
    limit = found.max_num_seqs or int(plan.setting("max-num-seqs") or 0) or math.inf
    running = min(at_once, limit)
    tokens = max(tokens_in_flight(work, running, spread) for _, work in loads.workloads)
    return math.ceil(max(tokens * MARGIN, found.max_model_len * 1.01) * found.kv_bytes_per_token)


def tokens_in_flight(work: Workload, running: float, spread: float = SPREADS[0]) -> float:
    """Of so many requests at their ends, that many standard deviations over the mean."""
    import random

    dice = random.Random("tokens in flight")
    seen = [work.prompt_tokens.draw(dice) + work.output_tokens.draw(dice) for _ in range(SAMPLES)]
    mean = sum(seen) / len(seen)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in seen) / len(seen))
    return running * mean + spread * math.sqrt(running) * deviation


def with_share(plan: Plan, new: Mapping[str, str]) -> Plan:
    """The plan with settings of the shared memory in place of its own."""
    kept = tuple(s for s in plan.settings if s.name not in new)
    mine = tuple(
        Setting(name=name, value=value, because="servers stand by each other", source="derived")
        for name, value in new.items()
    )
    return dataclasses.replace(plan, settings=(*kept, *mine))


def apart(plan: Plan, default: Plan) -> str | None:
    """Why a plan cannot be judged in a share of the memory."""
    for name in sorted(MEMORY):
        if plan.setting(name) != default.setting(name):
            return f"what `{name}` is worth is memory, which servers that stand by each other share"
    return None

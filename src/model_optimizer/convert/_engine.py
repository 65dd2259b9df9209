"""What the tools that build engines share: choices, limits by GPU, and the worker's request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from model_optimizer.core import Artifact, ModelSpec, Needs, Progress, RunWorker, Scheme, UsageError
from model_optimizer.facts import engine_limits
from model_optimizer.system.making import WorkerJob, bytes_beside_weights, made_by_worker

from ._profiles import Asked, Profile, derive, require_holds

IMPORTS_BYTES = 300_000_000
COPIES_IN_MEMORY = 3.6
"""Copies of the weights that the builder holds: 3.4 to 3.6 were seen for 440 MB to 2.4 GB (TensorRT for RTX
1.7).
"""
KERNELS_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a user decides of a build. Empty `capabilities`: all that the scheme can be built for.

    `profiles` () are derived from `asked`. `cache` is the folder of timing caches.
    """

    capabilities: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()
    asked: Asked = field(default_factory=Asked)
    workspace_bytes: int | None = None
    weight_streaming: bool = False
    strip_weights: bool = False
    version_compatible: bool = False
    hardware_compatible: bool = False
    optimization_level: int | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A tool of this room with choices in it; it has all that a tool has."""

    tool: ModuleType
    options: Mapping[str, Any]

    @property
    def READS(self) -> str:
        return self.tool.READS

    @property
    def FROM(self) -> frozenset[str]:
        return self.tool.FROM

    @property
    def WRITES(self) -> Mapping[str, str]:
        return self.tool.WRITES

    @property
    def TASKS(self) -> frozenset[str]:
        return self.tool.TASKS

    @property
    def ENVIRONMENT(self) -> str:
        return self.tool.ENVIRONMENT

    def needs(self, model: ModelSpec, scheme: Scheme) -> Needs:
        return self.tool.needs(model, scheme)

    def make(
        self, source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress
    ) -> Artifact:
        return self.tool.make(source, scheme, out, run=run, progress=progress, **self.options)


def needs(model: ModelSpec, scheme: Scheme) -> Needs:
    """The engine holds the weights once, with its kernels."""
    weights = model.parameters * max(4, scheme.weight_bits) // 8
    artifact = weights + KERNELS_BYTES + bytes_beside_weights(model)
    return Needs(
        disk_bytes=artifact,
        memory_bytes=IMPORTS_BYTES + round(COPIES_IN_MEMORY * weights),
        artifact_bytes=artifact,
    )


def build(
    name: str,
    environment: str,
    flavour: str,
    source: Artifact,
    scheme: Scheme,
    out: Path,
    *,
    run: RunWorker,
    progress: Progress,
    choices: Choices,
) -> Artifact:
    """Build one engine, with the proof of what it holds. Raises UsageError, ToolError."""
    facts = graph_facts(Path(source.path))
    profiles = choices.profiles or profiles_for(Path(source.path), facts.free, choices)
    require_holds(profiles, choices.asked.lengths, choices.asked.at_once)
    library = "tensorrt_rtx" if flavour == "rtx" else None
    request: dict[str, Any] = {
        "flavour": flavour,
        "capabilities": list(_capabilities(choices, scheme)) if library else [],
        "profiles": [{k: list(v) for k, v in profile.axes.items()} for profile in profiles],
        "opset_limit": engine_limits.limits(library).opset_to if library else None,
        "workspace_bytes": choices.workspace_bytes,
        "weight_streaming": choices.weight_streaming,
        "strip_weights": choices.strip_weights,
        "version_compatible": choices.version_compatible,
        "hardware_compatible": choices.hardware_compatible,
        "optimization_level": choices.optimization_level,
        "cache": str(choices.cache) if choices.cache else None,
    }
    job = WorkerJob(
        tool=name,
        environment=environment,
        worker="tensorrt_build",
        request=request,
        scheme=scheme.name,
        format=f"{name.removeprefix('engine_')}_engine",
    )
    made = made_by_worker(job, source, out, run=run, progress=progress)
    return _with_profiles(made, profiles)


def require_targets(capabilities: tuple[str, ...], scheme: str) -> None:
    """Refuse GPUs that a scheme cannot be built for, before anything is made. Raises UsageError."""
    limits = engine_limits.limits("tensorrt_rtx")
    known = {target.dotted: target for target in limits.target}
    possible = ", ".join(target.dotted for target in limits.targets(scheme))
    for text in capabilities:
        target = known.get(text)
        if target is None:
            raise UsageError(
                f"TensorRT for RTX builds nothing for compute capability {text}",
                cause=(f"it builds for {', '.join(known)}",),
                hint=("data-centre GPUs (9.0, 10.0) take TensorRT: --to tensorrt",),
                reference="capability-unsupported",
            )
        if scheme not in target.schemes:
            raise UsageError(
                f"{scheme} cannot be built for compute capability {text}",
                cause=(target.because or "the builder refuses it",),
                hint=(
                    f"{scheme} can be built for {possible or 'none'}",
                    f"{text} takes {', '.join(target.schemes)}",
                ),
                reference="capability-unsupported",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """What mopt.json says of a graph: its free dimensions in order, and the longest input."""

    free: tuple[str, ...] = ()
    longest: int | None = None
    size: int | None = None


def graph_facts(source: Path) -> GraphFacts:
    """Of an ONNX folder of ours; of any other source nothing is known before its graph is read."""
    import msgspec

    path = source / "mopt.json"
    if not path.is_file():
        return GraphFacts()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Facts)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"`{path}` cannot be read", cause=(str(error),)) from error
    free = [d for value in found.inputs for d in value.shape if isinstance(d, str)]
    return GraphFacts(free=tuple(dict.fromkeys(free)), longest=found.max_tokens, size=found.image_size)


def profiles_for(source: Path, free: tuple[str, ...], choices: Choices) -> tuple[Profile, ...]:
    """What follows from the load and from what a folder with a graph says of itself."""
    return derive(free, _asked(choices.asked, graph_facts(source)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    name: str
    shape: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    inputs: tuple[_Value, ...] = ()
    max_tokens: int | None = None
    image_size: int | None = None


def _asked(asked: Asked, facts: GraphFacts) -> Asked:
    """With what the graph says of itself where nothing was asked."""
    from dataclasses import replace

    sizes = asked.sizes
    if not sizes and facts.size:
        sizes = (
            (facts.size, facts.size),
            (facts.size // 2, facts.size // 2),
            (2 * facts.size, 2 * facts.size),
        )
    return replace(asked, longest=facts.longest, sizes=sizes)


def _capabilities(choices: Choices, scheme: Scheme) -> tuple[str, ...]:
    if choices.capabilities:
        require_targets(choices.capabilities, scheme.name)
        return choices.capabilities
    return tuple(t.dotted for t in engine_limits.limits("tensorrt_rtx").targets(scheme.name))


def _with_profiles(made: Artifact, profiles: tuple[Profile, ...]) -> Artifact:
    from dataclasses import replace

    said = tuple(
        "profile "
        + ", ".join(f"{name} {':'.join(map(str, axis))}" for name, axis in p.axes.items())
        + f": {p.because}"
        for p in profiles
    )
    return replace(made, notes=(*made.notes, *said))


__all__ = [
    "Choices",
    "Configured",
    "GraphFacts",
    "build",
    "graph_facts",
    "needs",
    "profiles_for",
    "require_targets",
]

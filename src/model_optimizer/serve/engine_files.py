"""Folders with an engine of TensorRT: whether this machine can run one, and how it is served."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import Artifact, Engine, Host, HostError, Plan, Setting, Slo, UsageError, Workload
from model_optimizer.core.model import Task
from model_optimizer.core.profiles import require_held
from model_optimizer.facts.engine_portability import RTX, BuiltFor, device_conflict, version_conflict

from .plain import Wish

FILE = "model.engine"
TASKS: tuple[Task, ...] = ("embed", "rerank", "vision")
WAIT_MS = "2"
AXES = {"max_model_len": "sequence", "max_num_seqs": "batch", "max_batch_size": "batch"}
"""Settings that say what will be asked at most, and the axis of an engine that must hold it."""
LARGER = "ask for less, or build it again with a larger --prompt-tokens, --concurrency or --profile"
INSTEAD = "serve the ONNX graph that it was made from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What mopt.json says an engine is for. A profile has (least, usual, most) of each free dimension."""

    library: str
    version: str
    compute_capabilities: tuple[str, ...] = ()
    device: str | None = None
    version_compatible: bool = False
    hardware_compatible: bool = False
    profiles: tuple[Mapping[str, tuple[int, int, int]], ...] = ()
    weights: str = "inside"

    @property
    def runs(self) -> BuiltFor:
        """Where it runs."""
        return BuiltFor(
            library=self.library,
            version=self.version,
            compute_capabilities=self.compute_capabilities,
            device=self.device,
            version_compatible=self.version_compatible,
            hardware_compatible=self.hardware_compatible,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The part of an engine folder's mopt.json that serving needs."""

    engine: Built
    task: Task
    scheme: str


def read(folder: Path) -> Facts:
    """Raises UsageError for a folder that does not say what its engine is for."""
    try:
        return msgspec.json.decode((folder / "mopt.json").read_bytes(), type=Facts)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"`{folder}` holds an engine, and nothing says what it is for",
            cause=(f"mopt.json: {error}",),
            hint=("build it with `mopt convert MODEL --to tensorrt`, or --to tensorrt-rtx",),
            reference="engine-unknown",
        ) from error


def planned(folder: Path, wish: Wish, host: Host, engines: Mapping[str, Engine]) -> tuple[Plan, Artifact]:
    """The plan for an engine on this host, with batches and lengths as its profiles take them.

    Raises HostError where no GPU here runs it, UsageError for what is not served.
    """
    facts = read(folder)
    built, name = facts.engine, facts.engine.library
    if name not in engines:
        raise UsageError(f"engines of `{name}` are not known here", reference="engine-unknown")
    engine = engines[name]
    require_gpu(folder, built, engine.TITLE, host)
    _require_held(built, wish)
    task = _task(facts, engine.TITLE, folder)
    if wish.engine not in (None, name) or wish.scheme not in (None, facts.scheme):
        raise UsageError(
            f"`{folder}` is an engine of {engine.TITLE} in {facts.scheme}, and nothing else",
            hint=("leave --engine and --scheme out",),
        )
    path = str(folder.absolute())
    artifact = Artifact(
        path=path,
        format=f"{name}_engine",
        scheme=facts.scheme,
        task=task,
        bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        digest="",
    )
    plan = Plan(
        model=folder.absolute().name,
        checkpoint=path,
        workload=Workload(task=task),
        slo=Slo(),
        engine=name,
        environment=engine.ENVIRONMENT,
        scheme=facts.scheme,
        format=artifact.format,
        settings=settings(built),
    )
    return plan, artifact


def require_gpu(folder: Path, built: Built, title: str, host: Host) -> None:
    """Raises HostError where no GPU of the host can run the engine."""
    if not host.gpus:
        raise HostError(
            "an engine runs on a GPU, and there is none here",
            cause=(f"`{folder.name}` was built by {title} {built.version}",),
            hint=(INSTEAD, "or copy the folder to a machine with the GPU"),
            reference="no-gpu",
        )
    have = sorted({c for gpu in host.gpus if (c := gpu.compute_capability)})
    if because := device_conflict(built.runs, have):
        shown = ", ".join(f"{major}.{minor}" for major, minor in have)
        rtx = f"build it again with --compute-capability {have[0][0]}.{have[0][1]}"
        again = rtx if built.library == RTX else "build it again on this machine: --to tensorrt"
        raise HostError(
            f"the engine in `{folder.name}` does not run on the GPU that is here",
            cause=(because, f"the GPU here has {shown}"),
            hint=(
                again if built.library == RTX else "build it again on this machine: --to tensorrt",
                INSTEAD,
            ),
            reference="engine-of-another-device",
        )


def require_version(folder: Path, title: str, have: str) -> None:
    """Raises HostError where the version of the library that is installed does not run the engine."""
    built = read(folder).engine
    if because := version_conflict(built.runs, have):
        raise HostError(
            f"the engine is of {title} {built.version}, {have} is installed",
            cause=(because,),
            hint=("build it again here with `mopt convert`", INSTEAD),
            reference="engine-of-another-version",
        )


def _require_held(built: Built, wish: Wish) -> None:
    """A length or number of requests that was asked for in words, and that no profile takes."""
    wanted: dict[str, int | None] = {}
    for name, value in wish.settings.items():
        axis = AXES.get(name.replace("-", "_"))
        if axis and value.isdecimal():
            wanted[axis] = int(value)
    require_held(built.profiles, wanted, (LARGER,))


def settings(built: Built) -> tuple[Setting, ...]:
    """What the profiles say: how many are computed at once, and the most tokens of a batch."""
    batch = max((p["batch"][2] for p in built.profiles if "batch" in p), default=1)
    tokens = max(
        (p["sequence"][2] * p.get("batch", (1, 1, 1))[2] for p in built.profiles if "sequence" in p),
        default=0,
    )
    found = [
        ("max_batch_size", str(batch), "the largest batch of the engine's profiles", "derived"),
        ("batch_timeout_ms", WAIT_MS if batch > 1 else "0", "short beside a request's own time", "assumed"),
    ]
    if tokens:
        found.append(
            ("max_batched_tokens", str(tokens), "the largest input of the engine's profiles", "derived")
        )
    return tuple(Setting(name=n, value=v, because=b, source=s) for n, v, b, s in found)  # pyright: ignore[reportArgumentType]


def _task(facts: Facts, title: str, folder: Path) -> Task:
    if facts.engine.weights != "inside":
        raise UsageError(
            f"the engine in `{folder}` was stripped of its weights",
            hint=("build it again without --strip-weights",),
            reference="engine-not-served",
        )
    if facts.task not in TASKS:
        raise UsageError(
            f"engines of {title} are served for {', '.join(TASKS)}, this one is for `{facts.task}`",
            hint=("language models have engines with a KV cache: `mopt plan MODEL`",),
            reference="engine-not-served",
        )
    return facts.task

"""The last step: an engine beside the graph that it was built from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import Gpu, HostError, UsageError, digest

from .chain import GRAPH, folders, links

SUFFIXES = (".engine", ".plan", ".trt")
FLAVOURS = {"tensorrt_rtx": "rtx", "tensorrt": "tensorrt"}
HINT = "convert once more with `mopt convert ... --steps DIR`, and name DIR with --steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`graph` is the folder with the graph it was built from; `environment` the one that can build it.

    `version` of the library that built it is None where its record does not say.
    """

    folder: Path
    graph: Path
    scheme: str
    environment: str
    version: str | None = None

    @property
    def flavour(self) -> str:
        return FLAVOURS[self.environment]


class _Library(msgspec.Struct, frozen=True):
    library: str
    version: str | None = None
    compute_capabilities: tuple[str, ...] = ()


class _Facts(msgspec.Struct, frozen=True):
    scheme: str
    engine: _Library


def file_of(path: Path) -> Path | None:
    """The engine that a path is or holds."""
    files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    return next((file for file in files if file.suffix in SUFFIXES), None)


def read(path: Path, kept: Path | None) -> Engine:
    """The engine with its graph, which its chain of links names by content. Raises UsageError without one."""
    file = file_of(path)
    assert file is not None
    folder, facts = file.parent, _facts(file)
    if facts.engine.library not in FLAVOURS:
        raise UsageError(f"`{file.name}` was built by `{facts.engine.library}`, which is not known")
    chain = links(folder)
    graph = next(
        (p for p in folders(folder, kept) if chain and digest.of_path(p) == chain[-1].made_from), None
    )
    if graph is None:
        raise UsageError(
            f"the graph that `{file.name}` was built from is not there",
            cause=(f"{GRAPH} of the link before the engine was looked for beside it and in --steps",),
            hint=(HINT,),
        )
    return Engine(
        folder=folder,
        graph=graph,
        scheme=facts.scheme,
        environment=facts.engine.library,
        version=facts.engine.version,
    )


def require_device(file: Path, gpus: Sequence[Gpu]) -> None:
    """Raises HostError where the engine's record names GPUs, and none of them is here."""
    built = _facts(file).engine.compute_capabilities
    have = sorted({f"{c[0]}.{c[1]}" for gpu in gpus if (c := gpu.compute_capability)})
    if built and have and not set(have) & set(built):
        raise HostError(
            f"`{file.name}` is for compute capability {', '.join(built)}",
            cause=(f"the GPU here has {', '.join(have)}",),
            hint=(
                f"build it again with --compute-capability {have[0]}",
                "verify the graph that it was built from: keep it with `mopt convert ... --steps DIR`",
            ),
            reference="engine-of-another-device",
        )


def _facts(file: Path) -> _Facts:
    try:
        return msgspec.json.decode((file.parent / "mopt.json").read_bytes(), type=_Facts)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"nothing says how `{file.name}` was built",
            cause=(str(error),),
            hint=("name what `mopt convert` made",),
        ) from error

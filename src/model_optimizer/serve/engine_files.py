"""Engine files of TensorRT: whether this machine could run one, from what its folder says of it."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import Host, HostError, MoptError, UsageError

FILE = "model.engine"
NAMES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The part of mopt.json that says what an engine is for."""

    library: str
    version: str
    compute_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    engine: Engine


def refusal(folder: Path, host: Host, *, installed: str | None = None) -> MoptError:
    """Why an engine folder is not served here: no GPU, another GPU, another version, or no server for it.

    `installed` is the version of its library on this machine, None where that is not known.
    """
    try:
        facts = msgspec.json.decode((folder / "mopt.json").read_bytes(), type=_Facts).engine
    except (OSError, msgspec.MsgspecError) as error:
        return UsageError(
            f"`{folder}` holds an engine, and nothing says what it is for",
            cause=(f"mopt.json: {error}",),
            hint=("build it with `mopt convert MODEL --to tensorrt`, or --to tensorrt-rtx",),
            reference="engine-unknown",
        )
    title, instead = NAMES.get(facts.library, facts.library), "serve the ONNX graph that it was made from"
    if not host.gpus:
        return HostError(
            "an engine runs on a GPU, and there is none here",
            cause=(f"`{folder.name}` was built by {title} {facts.version}",),
            hint=(instead, "or copy the folder to a machine with the GPU"),
            reference="no-gpu",
        )
    if installed is not None and installed != facts.version:
        return HostError(
            f"the engine is of {title} {facts.version}, {installed} is installed",
            cause=("an engine runs with the version that built it",),
            hint=("build it again here with `mopt convert`",),
            reference="engine-of-another-version",
        )
    have = {f"{c[0]}.{c[1]}" for gpu in host.gpus if (c := gpu.compute_capability)}
    if have and facts.compute_capabilities and not have & set(facts.compute_capabilities):
        return HostError(
            f"the engine is for compute capability {', '.join(facts.compute_capabilities)}",
            cause=(f"the GPU here has {', '.join(sorted(have))}",),
            hint=(f"build it again with --compute-capability {sorted(have)[0]}", instead),
            reference="engine-of-another-device",
        )
    return UsageError(
        f"engines of {title} are not served by this server",
        hint=(instead, "an engine of TensorRT: `mopt deploy ENGINE --to triton`"),
        reference="engine-not-served",
    )

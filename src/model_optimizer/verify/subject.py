"""A folder that somebody names on the command line, as the artefact that it is."""

from pathlib import Path
from typing import Literal, get_args

import msgspec

from model_optimizer.core import Artifact, HostError, Task, UsageError, digest

from .operators import engine

FACTS = "mopt.json"
HINT = "name a folder that `mopt convert` or `mopt quantize` made, a model.onnx, or a checkpoint folder"


class Facts(msgspec.Struct, frozen=True):
    """What is read of the mopt.json that lies in every ONNX folder of ours."""

    task: Task | None = None
    scheme: str | None = None


def read(path: Path, *, task: str, scheme: str | None = None) -> Artifact | None:
    """The ONNX artefact at `path`; None when it is a checkpoint. UsageError when it is neither, HostError
    for an engine.

    `task` is taken where the folder says none. `scheme` wins over what the folder says of itself; a graph
    without mopt.json needs it.
    """
    if not path.exists():
        raise UsageError(f"`{path}` is not there", hint=(HINT,))
    folder = path if path.is_dir() else path.parent
    if path.is_dir() and not any(path.glob("*.onnx")):
        if any(path.glob("*.safetensors")):
            return None
        if engine.file_of(path):
            raise HostError(
                f"`{path}` is an engine, which answers only on its GPU",
                hint=(
                    "there, `mopt serve` it and verify its URL: its answers beside the original's",
                    "--layer operators compares it with its graph, on the machine with the GPU",
                    "--layer model compares the graph: keep it with `mopt convert ... --steps DIR`",
                ),
            )
        raise UsageError(f"`{path}` holds no model", hint=(HINT,))
    if path.is_file() and path.suffix != ".onnx":
        raise UsageError(f"`{path}` is no ONNX file", hint=(HINT,))
    facts = _facts(folder)
    named = scheme or facts.scheme
    if named is None:
        raise UsageError(
            f"nothing says in which number format `{path}` is",
            cause=(f"there is no {FACTS} beside it",),
            hint=("add --scheme, for example --scheme int8: it decides what must be reached",),
        )
    form: Literal["onnx", "onnx_genai"] = "onnx_genai" if (folder / "genai_config.json").is_file() else "onnx"
    return Artifact(
        path=str(path),
        format=form,
        scheme=named,
        task=facts.task or ("generate" if form == "onnx_genai" else task),
        bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        digest=digest.of_path(path),
    )


def _facts(folder: Path) -> Facts:
    file = folder / FACTS
    if not file.is_file():
        return Facts()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Facts)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"`{file}` cannot be read",
            cause=(str(error),),
            hint=(f"tasks are {', '.join(get_args(Task))}",),
        ) from error

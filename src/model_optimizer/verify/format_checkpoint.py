"""A checkpoint as a linter sees it: its files, the headers of its tensors, its description. No weights."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from model_optimizer.core import UsageError
from model_optimizer.system import safetensors_header
from model_optimizer.system.models import config
from model_optimizer.system.models import folder as folders
from model_optimizer.system.safetensors_header import Tensor

PARTS = (
    "weight_packed", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_zero_point",
    "weight_shape", "weight_g_idx", "weight_scale", "input_global_scale", "input_scale", "input_zero_point",
    "pre_quant_scale", "qweight", "qzeros", "scales", "g_idx", "k_scale", "v_scale", "q_scale",
    "output_scale", "weight", "bias",
)  # fmt: skip
"""Last words of tensor names: what a tensor is to its layer. Names are those of compressed-tensors, AutoAWQ,
GPTQModel, ModelOpt and of the FP8 checkpoints of model makers."""

SCALES = frozenset(
    {
        "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "input_scale",
        "input_global_scale", "scales", "k_scale", "v_scale", "q_scale", "output_scale", "pre_quant_scale",
    }
)  # fmt: skip

INDEX = folders.INDEX
GGUF_HINT = (
    "llama.cpp serves it as it is: `llama-server -m FILE.gguf`",
    "for vLLM quantize the original checkpoint: `mopt quantize MODEL --scheme awq-int4 --out DIR`",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One tensor and the file that holds it."""

    file: str
    tensor: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`index` maps tensors to files as the index says, None without one; `promised_bytes` is its total.

    `twice` are tensors that several files hold, `beside` the names of all files of the folder.
    """

    path: Path
    keys: Mapping[str, object]
    sidecar: Mapping[str, object] | None
    tensors: Mapping[str, Stored]
    twice: tuple[str, ...] = ()
    index: Mapping[str, str] | None = None
    promised_bytes: int | None = None
    beside: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(stored.tensor.bytes for stored in self.tensors.values())

    def layers(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Layers (modules) by name, each with its tensors by what they are: `weight`, `weight_scale`."""
        found: dict[str, dict[str, Tensor]] = {}
        for name, stored in self.tensors.items():
            module, part = split(name)
            found.setdefault(module, {})[part] = stored.tensor
        return found

    def content(self, name: str) -> Iterator[bytes]:
        """The bytes of a tensor, piece by piece."""
        stored = self.tensors[name]
        return safetensors_header.content(self.path / stored.file, stored.tensor)


def split(name: str) -> tuple[str, str]:
    """(`model.layers.0.mlp.up_proj`, `weight_scale`)."""
    module, _, last = name.rpartition(".")
    return (module, last) if last in PARTS else (name, "")


def read(path: Path) -> Checkpoint:
    """Read the headers. UsageError for what is no checkpoint, for a broken or missing file, and for GGUF."""
    if path.suffix == ".gguf" or (path.is_dir() and not any(path.glob("*.safetensors")) and _gguf(path)):
        raise UsageError(
            f"`{path}` is GGUF, which is the format of llama.cpp",
            cause=("it holds weights in formats of its own; servers for GPUs read it slowly or not at all",),
            hint=GGUF_HINT,
            reference="gguf",
        )
    if not path.is_dir():
        raise UsageError(f"`{path}` is no folder", hint=("layer format looks at a checkpoint folder",))
    found = folders.look(path)
    if not found.files:
        raise UsageError(f"`{path}` holds no weights", hint=("layer format looks at safetensors files",))
    tensors: dict[str, Stored] = {}
    twice: list[str] = []
    for file in found.files:
        for name, tensor in safetensors_header.read(path / file).items():
            if name in tensors:
                twice.append(name)
            tensors[name] = Stored(file=file, tensor=tensor)
    index, promised = _index(path)
    return Checkpoint(
        path=path,
        keys=config.read(path / "config.json"),
        sidecar=found.sidecar(),
        tensors=tensors,
        twice=tuple(twice),
        index=index,
        promised_bytes=promised,
        beside=frozenset(entry.name for entry in path.iterdir()),
    )


def _gguf(path: Path) -> bool:
    return any(path.glob("*.gguf"))


def _index(path: Path) -> tuple[Mapping[str, str] | None, int | None]:
    if not (path / INDEX).is_file():
        return None, None
    keys = config.read(path / INDEX, largest=64 << 20)
    mapped = cast("Mapping[str, str]", keys.get("weight_map") or {})
    about = keys.get("metadata")
    total = cast("Mapping[str, object]", about).get("total_size") if isinstance(about, dict) else None
    return mapped, total if isinstance(total, int) and not isinstance(total, bool) and total > 0 else None


def numbers_out(name: str) -> str:
    """`model.layers.*.mlp.up_proj`, to say one thing once for all layers."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)

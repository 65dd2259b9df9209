"""A model folder on this machine: which files hold the weights, and why some folders are refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.system import safetensors_header
from model_optimizer.system.safetensors_header import Tensor

from . import config

INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "consolidated*.pth")
_LARGEST_BESIDE = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """`files` are the names of the weight files, () in a folder that holds none."""

    path: Path
    files: tuple[str, ...]

    @property
    def checkpoint_bytes(self) -> int | None:
        """What the weight files take together, None without any."""
        return sum((self.path / name).stat().st_size for name in self.files) if self.files else None

    def beside(self, name: str) -> bytes | None:
        """A small file of the folder by its relative name, None when there is none."""
        path = self.path / name
        try:
            if not path.is_file() or path.stat().st_size > _LARGEST_BESIDE:
                return None
            return path.read_bytes()
        except OSError as error:
            raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error

    def sidecar(self) -> Mapping[str, object] | None:
        """ModelOpt's own description of the quantization, where there is one."""
        content = self.beside("hf_quant_config.json")
        return None if content is None else config.parse(content, str(self.path / "hf_quant_config.json"))

    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors of all weight files. UsageError for a file that is not whole, or a promise not kept."""
        found: dict[str, Tensor] = {}
        for name in self.files:
            found.update(safetensors_header.read(self.path / name))
        promised = _weight_map(self.path) or {}
        lost = [tensor for tensor in promised if tensor not in found]
        if lost:
            raise _incomplete(
                self.path,
                f"the index names `{lost[0][:80]}` in `{promised[lost[0]]}`, which does not hold it",
            )
        return found


def look(path: Path) -> Folder:
    """Find the weights. UsageError for what is no model, or none that can be read safely."""
    if not (path / "config.json").is_file():
        raise _no_config(path)
    files = _weights(path)
    if not files and (pickles := _named(path, *_PICKLES)):
        raise _pickle_only(path, pickles)
    if not files and (gguf := _named(path, "*.gguf")):
        raise is_gguf(path / gguf[0])
    if not files and _named(path, "adapter_model.*", "adapter_config.json"):
        raise _adapter(path)
    return Folder(path=path, files=files)


def is_gguf(path: Path) -> UsageError:
    return UsageError(
        f"`{path}` is a GGUF file",
        cause=("GGUF holds weights already quantized for llama.cpp; here the original checkpoint is read",),
        hint=("pass the folder or hub id of the original model, with config.json and safetensors",),
        reference="model-format",
    )


def _weights(path: Path) -> tuple[str, ...]:
    """The files of an index, a complete set of shards, model.safetensors, or the only one there is."""
    mapped = _weight_map(path)
    if mapped is not None:
        files = tuple(sorted(set(mapped.values())))
        lost = [name for name in files if not (path / name).is_file()]
        if lost:
            raise _incomplete(
                path, f"`{lost[0]}` is missing, {len(lost)} of {len(files)} files that the index names"
            )
        return files
    if (path / "model.safetensors").is_file():
        return ("model.safetensors",)
    found = [n for n in _named(path, "*.safetensors") if not n.startswith(("adapter_", "consolidated"))]
    sets = [m for m in map(_SHARD.fullmatch, found) if m]
    if sets:
        first = sets[0]
        wanted = [
            f"{first[1]}-{number:05d}-of-{first[3]}.safetensors" for number in range(1, int(first[3]) + 1)
        ]
        lost = [name for name in wanted if name not in found]
        if lost:
            raise _incomplete(path, f"`{lost[0]}` is missing, {len(lost)} of {len(wanted)} files of the set")
        return tuple(wanted)
    if len(found) > 1:
        raise UsageError(
            f"`{path}` holds several safetensors files and no index",
            cause=(f"found: {', '.join(found[:5])}",),
            hint=(f"add {INDEX}, or leave only the files of one model",),
            reference="model-folder",
        )
    return tuple(found) or tuple(_named(path, "consolidated.safetensors"))


def _weight_map(path: Path) -> dict[str, str] | None:
    """Tensor -> file from the index, None without one. File names may not lead out of the folder."""
    index = path / INDEX
    if not index.is_file():
        return None
    mapped = config.read(index, largest=_LARGEST_BESIDE).get("weight_map")
    if (
        not isinstance(mapped, dict)
        or not mapped
        or not all(isinstance(name, str) for name in mapped.values())
    ):
        raise UsageError(
            f"`{index}` is not a valid index",
            cause=("`weight_map` is missing or does not map tensors to files",),
            hint=("download the file again",),
            reference="model-folder",
        )
    for name in set(mapped.values()):
        if (
            Path(name).name != name
            or name in (".", "..")
            or "\\" in name
            or not name.endswith(".safetensors")
        ):
            raise UsageError(
                f"`{index}` names a file that is refused: `{name[:80]}`",
                cause=("weights are safetensors files beside the index, nothing else",),
                reference="model-folder",
            )
    return mapped


def _named(path: Path, *patterns: str) -> list[str]:
    return sorted({found.name for pattern in patterns for found in path.glob(pattern)})


def _no_config(path: Path) -> UsageError:
    """The reason why there is no config.json, as far as the other files tell it."""
    if (path / "adapter_config.json").is_file():
        return _adapter(path)
    if gguf := _named(path, "*.gguf"):
        return is_gguf(path / gguf[0])
    if (path / "model_index.json").is_file():
        cause, hint = (
            "model_index.json belongs to a diffusion pipeline, which is not read here",
            "pass a language, embedding or vision model",
        )
    elif (path / "params.json").is_file():
        cause, hint = (
            "params.json belongs to the maker's own format",
            "use the release of this model in the transformers format",
        )
    else:
        cause, hint = "config.json is missing", "pass the folder that holds config.json and the weights"
    return UsageError(
        f"`{path}` is not a model folder", cause=(cause,), hint=(hint,), reference="model-folder"
    )


def _adapter(path: Path) -> UsageError:
    return UsageError(
        f"`{path}` holds an adapter (LoRA), not a model",
        cause=("an adapter has only differences to a base model",),
        hint=(
            "pass the base model, whose name is in adapter_config.json, or merge the two first:",
            "PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder)",
        ),
        reference="model-adapter",
    )


def _pickle_only(path: Path, pickles: list[str]) -> UsageError:
    return UsageError(
        f"`{path}` has its weights only as pickle: {', '.join(pickles[:3])}",
        cause=("unpickling can run any code that the file brings, so it is not done here",),
        hint=(
            "convert it once, with the loader that refuses code:",
            'state = torch.load("pytorch_model.bin", weights_only=True, map_location="cpu")',
            'safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, "model.safetensors", '
            'metadata={"format": "pt"})',
        ),
        reference="model-pickle",
    )


def _incomplete(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"`{path}` is not complete",
        cause=(cause,),
        hint=("download or copy the missing files; an interrupted download can be repeated",),
        reference="model-folder",
    )

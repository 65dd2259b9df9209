"""A model on a hub: how its id is written, and what the hub says of its files."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Literal

from model_optimizer.core import HostError, UsageError

Site = Literal["huggingface", "modelscope"]

# Limits of one request, and of a file that is read as a whole.
REQUEST_S = 5.0
SMALL_BYTES = 32 * 2**20

PREFIXES: dict[str, Site] = {
    "modelscope:": "modelscope",
    "huggingface:": "huggingface",
    "hf:": "huggingface",
}
# What a model needs: weights, configs, tokenizer. Pickles and other frameworks' weights stay where they are.
WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
UNWANTED = ("*/*.safetensors", "consolidated*", "original/*", "onnx/*", "openvino/*")

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`revision` None means the main branch."""

    id: str
    site: Site = "huggingface"
    revision: str | None = None

    def __str__(self) -> str:
        return f"{'modelscope:' if self.site == 'modelscope' else ''}{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The files of a model with their sizes (None: not said), and the commit they belong to."""

    address: Address
    commit: str
    files: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])

    @property
    def weights(self) -> tuple[str, ...]:
        """The safetensors files at the top of the repository, those in the maker's own format left out."""
        return tuple(
            name
            for name in sorted(self.files)
            if name.endswith(".safetensors") and "/" not in name and not name.startswith("consolidated")
        )

    @property
    def checkpoint_bytes(self) -> int | None:
        """None when there are no weights or the hub does not say how large they are."""
        sizes = [self.files[name] for name in self.weights]
        return sum(size or 0 for size in sizes) if sizes and all(sizes) else None

    @property
    def download_bytes(self) -> int | None:
        """What a download fetches, None when the hub does not say."""
        sizes = [size for name, size in self.files.items() if is_wanted(name)]
        return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


def parse(reference: str, revision: str | None = None) -> Address | None:
    """A hub id, with `modelscope:` before it for ModelScope; None when it does not look like one."""
    chosen = is_true("MODELSCOPE") or is_true("VLLM_USE_MODELSCOPE")
    name, site = reference, PREFIXES["modelscope:" if chosen else "hf:"]
    for prefix, named in PREFIXES.items():
        if reference.lower().startswith(prefix):
            name, site = reference[len(prefix) :].strip("/"), named
    if not _ID.fullmatch(name) or ".." in name:
        return None
    return Address(id=name, site=site, revision=revision)


def is_wanted(name: str) -> bool:
    """Whether a download takes this file."""
    return any(fnmatch(name, p) for p in WANTED) and not any(fnmatch(name, p) for p in UNWANTED)


def is_true(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def not_found(address: Address) -> UsageError:
    return UsageError(
        f"the hub knows no model `{address}`",
        hint=("ids are written organisation/name, with the same letter case; a private one needs HF_TOKEN",),
        reference="hub-unknown",
    )


def unreachable(address: Address, cause: str) -> HostError:
    return HostError(
        f"the hub cannot be asked for `{address}`",
        cause=(cause,),
        hint=(
            "pass a folder with the model, or its config.json alone for planning",
            "a mirror is used when HF_ENDPOINT (or MODELSCOPE_ENDPOINT) names one",
        ),
        reference="hub-unreachable",
    )


def first_line(error: BaseException) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else f"{text[:197]}..."

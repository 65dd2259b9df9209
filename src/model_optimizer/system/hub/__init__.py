"""Models on a hub: Hugging Face through huggingface_hub (extra `hub`), ModelScope through its HTTP interface.

Nothing here waits long: every request has a limit of a few seconds, and what has been downloaded before is
found without any. HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE, MODELSCOPE_ENDPOINT and MODELSCOPE_CACHE are
honoured.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from model_optimizer.core import Progress
from model_optimizer.system import files
from model_optimizer.system.safetensors_header import Tensor

from .address import SMALL_BYTES, Address, Remote, is_true, parse

__all__ = [
    "Address", "Remote", "cached_folder", "download", "headers", "is_complete", "is_offline", "look", "parse",
    "small_file",
]  # fmt: skip


def is_offline() -> bool:
    """Whether the user has said that no hub may be asked."""
    return any(map(is_true, ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MOPT_OFFLINE")))


def cached_folder(address: Address) -> Path | None:
    """The folder of an earlier download by the hub's own client, None when there is no config.json in one."""
    return _site(address).cached_folder(address)


def look(address: Address) -> Remote:
    """Ask the hub for the list of files. HostError when it cannot be asked, UsageError when it says no."""
    return _site(address).look(address)


def small_file(remote: Remote, name: str) -> bytes | None:
    """A file of at most 32 MB, None when the model has none of this name."""
    if name not in remote.files or (remote.files[name] or 0) > SMALL_BYTES:
        return None
    return _site(remote.address).small_file(remote, name)


def headers(remote: Remote, *, limit_s: float = 10.0) -> Mapping[str, Tensor] | None:
    """The tensors of all weight files; None when that takes longer than `limit_s` or is not offered."""
    return _site(remote.address).headers(remote, limit_s=limit_s)


def download(address: Address, progress: Progress = lambda what, share: None) -> Path:
    """Fetch config, tokenizer and safetensors into the hub client's cache; goes on where it was interrupted.

    Refuses with a HostError when the disk has no room for them. Returns the folder. `look` says
    beforehand how many bytes it will be.
    """
    if address.revision is None and (folder := cached_folder(address)) and is_complete(folder):
        return folder
    site, remote = _site(address), look(address)
    files.require_room(site.cache(), remote.download_bytes or 0, f"`{address}`")
    progress(f"download {address}", None)
    return site.download(remote, progress)


def is_complete(folder: Path) -> bool:
    """Whether a folder holds all weight files: model.safetensors, or every file that its index names."""
    import json

    if (folder / "model.safetensors").is_file():
        return True
    try:
        mapped = json.loads((folder / "model.safetensors.index.json").read_bytes())["weight_map"]
        names = {str(name) for name in mapped.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(names) and all("/" not in name and (folder / name).is_file() for name in names)


def _site(address: Address) -> ModuleType:
    if address.site == "modelscope":
        from . import modelscope

        return modelscope
    from . import huggingface

    return huggingface

"""Hugging Face's hub, through its own client; found and read from the client's cache without it."""

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from model_optimizer.core import HostError, Progress, UsageError
from model_optimizer.system import files
from model_optimizer.system.safetensors_header import Tensor

from .address import REQUEST_S, UNWANTED, WANTED, Address, Remote, first_line, not_found, unreachable

MOST_HEADERS = 16


def cache() -> Path:
    """The client's cache, by the same variables as the client itself."""
    if named := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return files.expanded(named)
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return files.expanded(home) / "hub"


def endpoint() -> str | None:
    """The mirror that the user names, None for the hub itself."""
    return os.environ.get("HF_ENDPOINT") or None


def cached_folder(address: Address) -> Path | None:
    repository = cache() / f"models--{address.id.replace('/', '--')}"
    revision = address.revision or "main"
    if not re.fullmatch(r"[\w./-]{1,200}", revision) or ".." in revision:
        return None
    try:
        commit = (repository / "refs" / revision).read_text().strip()
    except (OSError, UnicodeDecodeError):
        commit = revision
    folder = repository / "snapshots" / commit
    return folder if re.fullmatch(r"[\w.-]+", commit) and (folder / "config.json").is_file() else None


def look(address: Address) -> Remote:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise HostError(
            "huggingface_hub is not installed",
            cause=(f"`{address}` is on a hub, and the client for it is an extra",),
            hint=(
                "pip install 'model-optimizer[hub]'",
                "or download the model another way and pass its folder",
            ),
            reference="hub-client",
        ) from None
    info = _asking(
        address,
        lambda: HfApi(endpoint=endpoint()).model_info(
            address.id, revision=address.revision, timeout=REQUEST_S, files_metadata=True
        ),
    )
    return Remote(
        address=address,
        commit=info.sha or address.revision or "main",
        files={sibling.rfilename: sibling.size for sibling in info.siblings or ()},
    )


def small_file(remote: Remote, name: str) -> bytes | None:
    from huggingface_hub import hf_hub_download

    address = remote.address
    path = _asking(
        address,
        lambda: hf_hub_download(
            address.id,
            name,
            revision=remote.commit,
            etag_timeout=REQUEST_S,
            endpoint=endpoint(),
            cache_dir=cache(),
        ),
    )
    return Path(path).read_bytes()


def headers(remote: Remote, *, limit_s: float) -> Mapping[str, Tensor] | None:
    if not 0 < len(remote.weights) <= MOST_HEADERS:
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, SafetensorsParsingError

    found: dict[str, Tensor] = {}
    end, api = time.monotonic() + limit_s, HfApi(endpoint=endpoint())
    for name in remote.weights:
        if time.monotonic() > end:
            return None
        try:
            read = api.parse_safetensors_file_metadata(remote.address.id, name, revision=remote.commit)
        except (OSError, ValueError, HfHubHTTPError, SafetensorsParsingError, *_no_connection()):
            return None
        for key, info in read.tensors.items():
            start, stop = info.data_offsets
            found[key] = Tensor(dtype=info.dtype, shape=tuple(info.shape), bytes=stop - start)
    return found


def download(remote: Remote, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download

    address = remote.address
    folder = _asking(
        address,
        lambda: snapshot_download(
            address.id,
            revision=address.revision,
            allow_patterns=list(WANTED),
            ignore_patterns=list(UNWANTED),
            endpoint=endpoint(),
            cache_dir=cache(),
        ),
    )
    progress(f"downloaded {address}", 1.0)
    return Path(folder)


def _no_connection() -> tuple[type[Exception], ...]:
    """What the HTTP library below the client raises without a connection, whichever of them it uses.

    The client's own error derives from that library's HTTPError, which is the root of its others too.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")  # pyright: ignore[reportReturnType]


def _asking(address: Address, call: Callable[[], Any]) -> Any:
    """Run a call of the client; its errors become ours, in the user's words and without a token."""
    from huggingface_hub import errors

    try:
        return call()
    except errors.GatedRepoError as error:
        raise UsageError(
            f"`{address}` is a gated model",
            cause=("the hub gives it only to those who accepted its licence there",),
            hint=("accept the licence on the model's page, then set HF_TOKEN or run `hf auth login`",),
            reference="hub-gated",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(
            f"`{address}` has no revision `{address.revision}`", reference="hub-revision"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise not_found(address) from error
    except (OSError, errors.HfHubHTTPError, errors.OfflineModeIsEnabled, *_no_connection()) as error:
        raise unreachable(address, first_line(error)) from error

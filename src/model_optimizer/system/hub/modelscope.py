"""ModelScope's hub, through the HTTP interface that its own client uses."""

import os
from collections.abc import Mapping
from pathlib import Path

from model_optimizer.core import Progress
from model_optimizer.system import files
from model_optimizer.system.safetensors_header import Tensor

from .address import REQUEST_S, SMALL_BYTES, Address, Remote, first_line, is_wanted, not_found, unreachable

TRANSFER_S = 60.0
_CHUNK = 1 << 20


def endpoint() -> str:
    return (os.environ.get("MODELSCOPE_ENDPOINT") or "https://www.modelscope.cn").rstrip("/")


def cache() -> Path:
    named = os.environ.get("MODELSCOPE_CACHE")
    return files.expanded(named) if named else files.expanded("~") / ".cache" / "modelscope" / "hub"


def cached_folder(address: Address) -> Path | None:
    if address.revision not in (None, "master"):
        return None
    places = [cache() / "models" / address.id, cache() / address.id, cache() / "hub" / "models" / address.id]
    return next((place for place in places if (place / "config.json").is_file()), None)


def look(address: Address) -> Remote:
    import json
    from urllib.parse import quote

    revision = address.revision or "master"
    query = f"Revision={quote(revision, safe='')}&Recursive=True"
    content = _fetch(f"{endpoint()}/api/v1/models/{quote(address.id)}/repo/files?{query}", address)
    if content is None:
        raise not_found(address)
    try:
        listed = (json.loads(content).get("Data") or {}).get("Files") or []
        found = {str(entry["Path"]): entry.get("Size") for entry in listed if entry.get("Type") != "tree"}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise unreachable(address, f"its answer is not a list of files: {first_line(error)}") from error
    sizes = {name: size if isinstance(size, int) else None for name, size in found.items()}
    return Remote(address=address, commit=revision, files=sizes)


def small_file(remote: Remote, name: str) -> bytes | None:
    return _fetch(_url(remote, name), remote.address)


def headers(remote: Remote, *, limit_s: float) -> Mapping[str, Tensor] | None:
    """Parts of a file are not offered, so counts come from config.json."""
    return None


def download(remote: Remote, progress: Progress) -> Path:
    """Each file goes to a `.part` beside its place, is continued when it is there already, then renamed."""
    target = cache() / "models" / remote.address.id
    total, done = remote.download_bytes, 0
    for name, size in sorted(remote.files.items()):
        if not is_wanted(name) or ".." in Path(name).parts or Path(name).is_absolute():
            continue
        path = target / name
        if not (path.is_file() and path.stat().st_size == size):
            _continue(_url(remote, name), path, size, remote.address)
        done += size or 0
        progress(f"download {name}", done / total if total else None)
    return target


def _url(remote: Remote, name: str) -> str:
    from urllib.parse import quote

    query = f"Revision={quote(remote.commit, safe='')}&FilePath={quote(name, safe='')}"
    return f"{endpoint()}/api/v1/models/{quote(remote.address.id)}/repo?{query}"


def _fetch(url: str, address: Address) -> bytes | None:
    """The body of an answer of at most 32 MB, None for 404."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=REQUEST_S) as answer:
            return answer.read(SMALL_BYTES)
    except HTTPError as error:
        with error:
            if error.code == 404:
                return None
            raise unreachable(address, f"it answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise unreachable(address, first_line(error)) from error


def _continue(url: str, path: Path, size: int | None, address: Address) -> None:
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    have = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with (
            urlopen(request, timeout=TRANSFER_S) as answer,
            part.open("ab" if have and answer.status == 206 else "wb") as out,
        ):
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
    except (OSError, HTTPException) as error:
        raise unreachable(address, f"{path.name}: {first_line(error)}; run it again to go on") from error
    if size is not None and part.stat().st_size != size:
        raise unreachable(
            address, f"{path.name} has {part.stat().st_size} of {size} bytes; run it again to go on"
        )
    part.replace(path)

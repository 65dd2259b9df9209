"""The files of an ONNX graph: itself, and those beside it that hold its weights.

The graph names them, and it is foreign: a name that leads out of its folder is refused.
"""

import hashlib
from pathlib import Path

from model_optimizer.core import UsageError, digest

from .onnx_header import Header


def beside(path: Path, header: Header) -> tuple[Path, ...]:
    """The files with the weights of a graph, all there and long enough. Raises UsageError.

    Links are not followed: neither does the library that reads them.
    """
    return tuple(_required(path, where, size) for where, size in sorted(header.data.items()))


def size_bytes(path: Path, header: Header) -> int:
    """Bytes of a graph with its weights. Raises UsageError."""
    return sum(file.stat().st_size for file in (path, *beside(path, header)))


def content_digest(path: Path, header: Header) -> str:
    """Of the file, where all is in it; else of the names and contents of its files. Raises UsageError."""
    files = beside(path, header)
    if not files:
        return digest.of_path(path)
    named = {".": path, **{file.relative_to(path.parent).as_posix(): file for file in files}}
    lines = "".join(f"{name}\0{digest.of_path(file)}\n" for name, file in sorted(named.items()))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _required(path: Path, where: str, size: int) -> Path:
    shown = where if where.isprintable() else ascii(where)
    if not where or "\0" in where or not _inside(path.parent, where):
        raise UsageError(
            f"`{path.name}` points outside its folder for its weights",
            cause=(shown[:300] or "the name is empty",),
            hint=("weights are read from the graph's own folder alone: save the model there with its data",),
            reference="broken-artifact",
        )
    file = path.parent / where
    if file.is_symlink():
        raise UsageError(
            f"the weights of `{path.name}` are a link: `{shown}`",
            cause=(
                "weights are read from files inside the graph's folder alone, as caches of hubs have none",
            ),
            hint=("copy the folder with what its links lead to: cp -rL FOLDER COPY",),
            reference="broken-artifact",
        )
    have = file.stat().st_size if file.is_file() else None
    if have is None or have < size:
        said = "it is missing" if have is None else f"{have} bytes are there, {size} are needed"
        raise UsageError(
            f"the weights of `{path.name}` are not whole: `{shown}`",
            cause=(said,),
            hint=(f"copy `{shown}` beside `{path.name}`: the graph and its data belong together",),
            reference="external-data-missing",
        )
    return file


def _inside(folder: Path, where: str) -> bool:
    """By the name alone: no way out of the folder, and no folder on the way that is a link."""
    parts = Path(where)
    if parts.is_absolute() or ".." in parts.parts or parts == Path():
        return False
    return not any((folder / parent).is_symlink() for parent in parts.parents if parent != Path())

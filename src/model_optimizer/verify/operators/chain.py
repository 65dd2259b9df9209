"""The graphs between a checkpoint and a candidate, found through what each says it was made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import digest

CHAIN = "chain.json"
GRAPH = "model.onnx"
MOST_FOLDERS = 200
STEPS = {
    "onnx_export": "export",
    "onnx_prefill": "export",
    "onnx_vision": "export",
    "onnx_clean": "clean-up",
    "onnx_cast": "cast",
    "onnx_qdq": "Q/DQ",
    "onnx_quantize": "Q/DQ",
}


class Link(msgspec.Struct, frozen=True):
    """What is read of one link of a chain.json."""

    tool: str
    job: str
    scheme: str
    made_from: str


class _Chain(msgspec.Struct, frozen=True):
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One or more links in a row whose result is at `path`; several where what lies between is not there."""

    name: str
    scheme: str
    path: Path


def links(folder: Path) -> tuple[Link, ...]:
    """The links from the checkpoint to a folder; none where nothing readable says so."""
    try:
        return msgspec.json.decode((folder / CHAIN).read_bytes(), type=_Chain).links
    except (OSError, msgspec.MsgspecError):
        return ()


def steps(candidate: Path, scheme: str, kept: Path | None = None) -> tuple[Step, ...]:
    """Every step to the candidate whose graph is there: beside it, one folder below that, or in `kept`.

    A candidate that says nothing of its making is one step, named `all steps`.
    """
    folder = candidate if candidate.is_dir() else candidate.parent
    graph = candidate if candidate.is_file() else folder / GRAPH
    chain = links(folder)
    if not chain:
        return (Step(name="all steps", scheme=scheme, path=graph),)
    found = {len(chain): graph} | _between(chain, folder, kept)
    made: list[Step] = []
    begin = 0
    for end in sorted(found):
        name = " + ".join(dict.fromkeys(STEPS.get(link.job, link.tool) for link in chain[begin:end]))
        last = chain[end - 1]
        made.append(Step(name=name, scheme=last.scheme if end < len(chain) else scheme, path=found[end]))
        begin = end
    return tuple(made)


def _between(chain: Sequence[Link], folder: Path, kept: Path | None) -> dict[int, Path]:
    """After how many links -> the graph there. The content decides, not what a folder is called."""
    found: dict[int, Path] = {}
    for place in folders(folder, kept):
        own = links(place)
        count = len(own)
        if count in found or not 0 < count < len(chain) or own != tuple(chain[:count]):
            continue
        if digest.of_path(place) == chain[count].made_from:
            found[count] = place / GRAPH
    return found


def folders(folder: Path, kept: Path | None) -> Iterator[Path]:
    """Folders that hold a graph: what is named, then neighbours and what lies in them."""
    places = [*([kept, *_below(kept)] if kept else []), *_below(folder.absolute().parent)]
    count = 0
    for place in places:
        for inner in (place, *_below(place)):
            if count == MOST_FOLDERS:
                return
            if inner != folder and (inner / GRAPH).is_file():
                count += 1
                yield inner


def _below(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())[:MOST_FOLDERS]
    except OSError:
        return []

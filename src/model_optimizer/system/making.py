"""Letting tools make artefacts: one worker job as an artefact, and a chain of tools one after the other."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_optimizer.core import (
    Artifact,
    HostError,
    MadeBy,
    ModelSpec,
    Needs,
    Plan,
    Progress,
    RunWorker,
    Scheme,
    ToolError,
    UsageError,
    codec,
    digest,
    paths,
)
from model_optimizer.core.paths import Chain, Hop
from model_optimizer.core.protocols import Tool
from model_optimizer.core.units import show_bytes

from . import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What making needs besides the chain: the tools and schemes by name, and a way to run workers."""

    tools: Mapping[str, Tool]
    schemes: Mapping[str, Scheme]
    run: RunWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """One tool's work: which worker in which environment, asked for what, making which artefact."""

    tool: str
    environment: str
    worker: str
    request: Mapping[str, Any]
    scheme: str
    format: str


def bytes_beside_weights(model: ModelSpec) -> int:
    """About what a graph and a tokenizer take: a megabyte, and a line of JSON for each word."""
    return 1_000_000 + 100 * model.vocab_size


def made_by_worker(
    job: WorkerJob, source: Artifact, out: Path, *, run: RunWorker, progress: Progress
) -> Artifact:
    """Let a worker fill a new folder, which becomes `out` when it is whole, and describe it.

    The worker gets `source`, `out` and `scheme` besides the job's request, and answers with `versions`
    (of the libraries that did the work, the first first) and `notes`. Raises what the worker raises; then
    nothing is left behind.
    """
    with files.building(out) as folder:
        asked = {"source": source.path, "out": str(folder), "scheme": job.scheme, **job.request}
        answer = run(job.environment, job.worker, asked, progress)
        if not any(folder.iterdir()):
            raise ToolError(f"`{job.tool}` ended without making anything", cause=(f"worker {job.worker}",))
        progress("naming the content", None)
        return Artifact(
            path=str(out),
            format=job.format,
            scheme=job.scheme,
            task=source.task,
            bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
            digest=digest.of_path(folder),
            made_from=source.digest,
            made_by=MadeBy(tool=job.tool, version=_versions(answer)),
            notes=(*source.notes, *(str(note) for note in answer.get("notes", ()))),
        )


def require_new(out: Path, source: Artifact | None = None) -> None:
    """Refuse a place that cannot be taken, before any work. Raises UsageError and HostError.

    It holds something, lies in the folder that is read (whose content would no longer be what its digest
    says), or cannot be written.
    """
    with files.explained(out):
        if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
            raise UsageError(f"`{out}` exists already", hint=("name another place, or remove it first",))
        place = out.absolute()
        if source and place.resolve().is_relative_to(Path(source.path).resolve()):
            raise UsageError(
                f"`{out}` lies inside of the model that is read",
                cause=(f"the model is {source.path}",),
                hint=("name a place outside of it",),
            )
        while not place.exists():
            place = place.parent
    if not place.is_dir():
        raise UsageError(f"`{place}` is no folder", cause=(f"`{out}` would lie in it",))
    files.require_writable(place)


def require_room(needs: Needs, out: Path, memory_available_bytes: int | None) -> None:
    """Refuse to begin what disk or memory cannot hold. What is unknown is let pass. Raises HostError."""
    files.require_room(out, needs.disk_bytes, "making this")
    if memory_available_bytes is not None and memory_available_bytes < needs.memory_bytes:
        raise HostError(
            f"making this needs {show_bytes(needs.memory_bytes)} of memory, "
            f"{show_bytes(memory_available_bytes)} are available",
            hint=("close other programs, or make it on a machine with more memory and copy it here",),
            reference="out-of-memory",
        )


def follow(chain: Chain, source: Artifact, out: Path, bench: Bench, progress: Progress) -> Artifact:
    """Make `out` by a chain of tools; what lies between is removed."""
    out = out.absolute()
    with files.between(out) as between:
        for place, hop in enumerate(chain):
            last = place == len(chain) - 1
            target = out if last else between / _name(hop)
            source = _make(hop, source, target, bench, _part(progress, place, len(chain)))
    return source


def chain_of(plan: Plan, checkpoint: Artifact, bench: Bench) -> Chain:
    """The steps that a plan's path names; none when it serves the checkpoint as it is. Raises UsageError."""
    if not plan.path:
        return ()
    possible = paths.paths(
        checkpoint.task,
        plan.scheme,
        checkpoint.format,
        (plan.format,),
        bench.tools,
        have_scheme=checkpoint.scheme,
    )
    return paths.named(plan.path, possible)


def make_plan(plan: Plan, checkpoint: Artifact, folder: Path, bench: Bench, progress: Progress) -> Artifact:
    """Make what a plan serves. Every step of its path stays in `folder` as `<tool>-<scheme>`.

    What lies there already, made of the same content, is not made again: candidates share their steps.
    """
    chain = chain_of(plan, checkpoint, bench)
    made = checkpoint
    for place, hop in enumerate(chain):
        target = folder.absolute() / _name(hop)
        note = target.with_name(f"{target.name}.json")
        kept = _kept(note, target, made)
        if kept is None:
            shutil.rmtree(target, ignore_errors=True)
            kept = _make(hop, made, target, bench, _part(progress, place, len(chain)))
            files.write_atomic(note, codec.dumps(kept))
        made = kept
    return made


def _make(hop: Hop, source: Artifact, target: Path, bench: Bench, progress: Progress) -> Artifact:
    tool = bench.tools[hop.tool]
    return tool.make(source, bench.schemes[hop.scheme], target, run=bench.run, progress=progress)


def _kept(note: Path, target: Path, source: Artifact) -> Artifact | None:
    if not (note.is_file() and target.exists()):
        return None
    found = codec.load(note, Artifact)
    return replace(found, path=str(target)) if found.made_from == source.digest else None


def _name(hop: Hop) -> str:
    return f"{hop.tool}-{hop.scheme}"


def _part(progress: Progress, place: int, of: int) -> Progress:
    """The share of one step as a share of them all."""

    def report(text: str, share: float | None) -> None:
        progress(text, None if share is None else (place + share) / of)

    return report


def _versions(answer: Mapping[str, Any]) -> str:
    versions: Mapping[str, str] = answer.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown"

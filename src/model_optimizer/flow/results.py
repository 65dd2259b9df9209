"""Finds measurements behind what a user names: a file of ours or of another tool, a run, a folder of runs."""

from pathlib import Path

from model_optimizer.bench import imports
from model_optimizer.core import Measurement, UsageError
from model_optimizer.system import runs

_MOST = 200


def measurements(named: str, *, tool: str | None = None) -> list[Measurement]:
    """One measurement for a file or a run (its winner, or `RUN:CANDIDATE`), several for a folder that holds
    several result files: these are taken as repeated runs of the same thing.

    UsageError says what is not there.
    """
    path, candidate = _split(named)
    if (path / "run.json").is_file():
        return [_of_run(path, candidate)]
    if candidate is not None:
        raise UsageError(f"`{path}` is not a run, so it has no candidate `{candidate}`")
    if path.is_dir():
        return _of_folder(path, tool)
    return [imports.read(path, tool=tool)]


def _split(named: str) -> tuple[Path, str | None]:
    whole = Path(named)
    if whole.exists() or ":" not in named:
        return whole, None
    path, _, candidate = named.rpartition(":")
    return Path(path), candidate


def _of_run(path: Path, candidate: str | None) -> Measurement:
    record = runs.open_run(path).record()
    name = candidate or record.run.winner
    if name is None:
        raise UsageError(f"`{path}` has no winner", hint=(f"name a candidate: {path}:reference",))
    for one in record.candidates:
        if one.name == name:
            if one.measurement is None:
                raise UsageError(f"`{name}` of `{path}` was not measured")
            return one.measurement
    known = ", ".join(c.name for c in record.candidates)
    raise UsageError(f"`{path}` has no candidate `{name}`", hint=(f"it has {known}",))


def _of_folder(path: Path, tool: str | None) -> list[Measurement]:
    files = sorted(p for p in path.iterdir() if p.suffix == ".json" and p.is_file())[:_MOST]
    if not files:
        raise UsageError(
            f"`{path}` holds no result", hint=("name a run, a file, or a folder of result files",)
        )
    return [imports.read(file, tool=tool) for file in files]

"""Finds measurements behind what a user names: a file of ours or of another tool, a run, a folder of runs."""

from pathlib import Path

from model_optimizer import report
from model_optimizer.bench import imports, soak, timeline
from model_optimizer.bench.watched import kept
from model_optimizer.core import Measurement, UsageError, codec
from model_optimizer.core.study import Study
from model_optimizer.system import runs

_MOST = 200
STUDY = "study.json"


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


def page(named: str, kind: str) -> str:
    """A run (all its candidates), or one measurement, as `html`, `md` or `json`. UsageError when there is
    nothing to report."""
    path, candidate = _split(named)
    if (path / "run.json").is_file() and candidate is None:
        record = runs.open_run(path).record()
        made = {"html": report.html, "md": report.markdown, "json": codec.dumps}
        return made[kind](record)
    if (found := _study(path)) is not None:
        return study_page(found, kind)
    if (path / soak.journal.NAME).is_file():
        return _soak_page(path, kind)
    found = measurements(named)
    if len(found) > 1:
        raise UsageError(
            f"`{named}` holds {len(found)} results", hint=("report one of them, or use `mopt compare`",)
        )
    name = found[0].model or path.stem
    if kind == "json":
        return codec.dumps(found[0])
    write = report.measurement_html if kind == "html" else report.measurement_markdown
    return write(found[0], name)


def _study(path: Path) -> Study | None:
    """The study in a folder of `mopt tune`, or in the file of one."""
    file = path / STUDY if path.is_dir() else path
    return codec.load(file, Study) if file.name == STUDY and file.is_file() else None


def study_page(study: Study, kind: str) -> str:
    """As `html`, `md` or `json`."""
    made = {"html": report.study_html, "md": report.study_markdown, "json": codec.dumps}
    return made[kind](study)


def _soak_page(folder: Path, kind: str) -> str:
    from .soak import answer, course

    if kind == "json":
        return codec.dumps(answer(folder))
    return report.course_html(course(folder)) if kind == "html" else report.course_markdown(course(folder))


def what_happened(named: str, at_s: float, *, within_s: float = 1.0) -> tuple[str, ...]:
    """What was unusual around a moment of a measurement, in seconds since its load began, the strongest
    first. UsageError when the measurement carries no timeline, or the moment is not in it."""
    (found, *more) = measurements(named)
    if more:
        raise UsageError(f"`{named}` holds several results", hint=("name one of them",))
    recorded = kept(found)
    if not recorded.series:
        raise UsageError(
            f"`{named}` carries no timeline",
            hint=("measure with `mopt bench --out`, without --no-telemetry",),
        )
    begin = min(s.times_ns[0] for s in recorded.series.values() if s.times_ns) / 1e9
    end = max(s.times_ns[-1] for s in recorded.series.values() if s.times_ns) / 1e9
    if not begin <= at_s <= end:
        raise UsageError(f"{at_s:g} s is not in the timeline, which goes from {begin:.1f} to {end:.1f} s")
    return timeline.happened(recorded, (), round(at_s * 1e9), within_s=within_s)

"""The folder of one run: every noun in a file of its own, written whole or not at all.

run.json host.json model.json workload.json slo.json plan.json log/ report.html report.md
candidates/<name>/{plan,artifact,verdict-<layer>,measurement}.json
artifacts/<name>/          what tools made; paths inside the run are stored relative to it
"""

import dataclasses
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from model_optimizer.core import (
    Artifact,
    Candidate,
    Host,
    HostError,
    Measurement,
    ModelSpec,
    Plan,
    Record,
    Rejection,
    Run,
    Slo,
    UsageError,
    Verdict,
    Workload,
    codec,
)
from model_optimizer.core.record import Fate

from .files import locked, write_atomic

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """The content of rejected.json."""

    rows: tuple[Rejection, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The content of candidates/<name>/outcome.json."""

    fate: Fate
    because: str | None = None


class RunFolder:
    """Reads and writes the nouns of one run. A missing file is None, never an error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, noun: object, name: str) -> None:
        """`name` is the file's path in the run without `.json`."""
        write_atomic(self.path / f"{name}.json", codec.dumps(noun))

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.json").exists()

    def reopen(self, candidate: str) -> None:
        """Forget all that was found out about a candidate but its plan."""
        for file in (self.path / "candidates" / candidate).glob("*.json"):
            if file.stem != "plan":
                file.unlink()

    @contextmanager
    def alone(self) -> Generator[None]:
        """One process at a time works on a run. HostError when another one does."""

        def taken() -> None:
            raise HostError(
                f"another mopt is at work on `{self.path}`",
                hint=("wait for it to end, or stop it with Ctrl-C",),
                reference="run-in-use",
            )

        with locked(self.path / ".lock", waiting=taken):
            yield

    def write_text(self, name: str, text: str) -> None:
        """A file that is no noun, such as a report."""
        write_atomic(self.path / name, text)

    def read(self, kind: type[T], name: str) -> T | None:
        path = self.path / f"{name}.json"
        return codec.load(path, kind) if path.exists() else None

    def write_artifact(self, artifact: Artifact, candidate: str) -> None:
        path = Path(artifact.path)
        if path.is_relative_to(self.path):
            artifact = dataclasses.replace(artifact, path=str(path.relative_to(self.path)))
        self.write(artifact, f"candidates/{candidate}/artifact")

    def read_artifact(self, candidate: str) -> Artifact | None:
        """The artefact with a path that can be used, or None when it is not there (any more)."""
        artifact = self.read(Artifact, f"candidates/{candidate}/artifact")
        if artifact is None:
            return None
        path = self.path / artifact.path
        return dataclasses.replace(artifact, path=str(path)) if path.exists() else None

    def log(self, name: str) -> Path:
        folder = self.path / "log"
        folder.mkdir(exist_ok=True)
        return folder / f"{re.sub(r'[^a-zA-Z0-9._-]+', '-', name)}.log"

    def candidates(self) -> list[str]:
        """Names of the candidates, the reference first."""
        folder = self.path / "candidates"
        names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        return sorted(names, key=lambda name: name != "reference")

    def candidate(self, name: str) -> Candidate:
        base = f"candidates/{name}"
        plan = self.read(Plan, f"{base}/plan")
        if plan is None:
            raise UsageError(f"`{self.path}` holds no plan for `{name}`", hint=("start a new run",))
        outcome = self.read(Outcome, f"{base}/outcome") or Outcome(fate="waiting")
        verdicts = [
            self.read(Verdict, f"{base}/{path.stem}")
            for path in sorted((self.path / base).glob("verdict-*.json"))
        ]
        return Candidate(
            name=name,
            plan=plan,
            artifact=self.read_artifact(name),
            verdicts=tuple(v for v in verdicts if v),
            measurement=self.read(Measurement, f"{base}/measurement"),
            fate=outcome.fate,
            because=outcome.because,
        )

    def record(self) -> Record:
        """The whole run as one noun. UsageError when a file that every run has is missing."""
        rejected = self.read(Rejections, "rejected")
        return Record(
            run=self._needed(Run, "run"),
            host=self._needed(Host, "host"),
            model=self._needed(ModelSpec, "model"),
            workload=self._needed(Workload, "workload"),
            slo=self._needed(Slo, "slo"),
            candidates=tuple(self.candidate(name) for name in self.candidates()),
            rejected=rejected.rows if rejected else (),
        )

    def _needed(self, kind: type[T], name: str) -> T:
        noun = self.read(kind, name)
        if noun is None:
            raise UsageError(
                f"`{self.path}` is not a run: it has no {name}.json",
                hint=("runs are the folders below `runs/` that `mopt optimize` makes",),
            )
        return noun


def create(below: Path, model: str, *, now: datetime | None = None) -> RunFolder:
    """Make `<below>/<utc-time>-<model>/`. HostError when that cannot be written."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^a-z0-9]+", "-", Path(model).name.lower()).strip("-") or "model"
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        path = below / f"{stamp}-{name}{suffix}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise HostError(
                f"the run folder `{path}` cannot be made",
                cause=(error.strerror or str(error),),
                hint=("name a folder that you may write to with --runs",),
                reference="unwritable",
            ) from error
        return RunFolder(path)
    raise HostError(f"`{below}` already holds 99 runs of this second")


def open_run(path: Path) -> RunFolder:
    """An existing run. UsageError when the folder is not one."""
    if not (path / "run.json").is_file():
        raise UsageError(
            f"`{path}` is not a run folder",
            hint=("runs are the folders below `runs/` that `mopt optimize` makes",),
        )
    return RunFolder(path)

"""Make, inspect and remove environments."""

import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from model_optimizer.core import HostError, MoptError, Needs, Progress, UsageError
from model_optimizer.core.plugins import canonical
from model_optimizer.core.units import show_bytes
from model_optimizer.system import files, processes, unfinished

from . import pip, pythons, versions, worker
from . import recipe as recipes
from .pythons import MARKER, Installed, Marker, folder, installed, marker, python_of
from .recipe import Recipe

Condition = Literal["ready", "missing", "outdated", "damaged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where one environment stands. `because` says what is wrong, a line each; `needs` are bytes.

    `outdated`: made from another lock than the one that ships now. `damaged`: it was changed since.
    """

    name: str
    title: str
    condition: Condition
    path: str
    needs: Needs
    python: str | None = None
    made_at: str | None = None
    disk_bytes: int | None = None
    seconds: float | None = None
    because: tuple[str, ...] = ()


def needs(name: str) -> Needs:
    """Bytes that making one downloads, writes and holds in RAM. HostError when the disk is short."""
    recipe = recipes.load(name)
    _require_room(recipe)
    return recipe.needs


def state(name: str) -> Environment:
    """Where an environment stands, by its marker alone (fast)."""
    recipe = recipes.load(name)
    place = folder() / recipe.name
    found = marker(place)
    if found is None:
        because = ("it was not finished, or its Python is gone",) if place.exists() else ()
        return _environment(recipe, "damaged" if because else "missing", because=because)
    if found.lock_digest != recipe.digest:
        because = ("it was made from another version of the lock",)
        return _environment(recipe, "outdated", found, because)
    return _environment(recipe, "ready", found)


def list_all() -> tuple[Environment, ...]:
    """Every environment that can be made, sorted by name."""
    return tuple(state(name) for name in recipes.names())


def check(name: str, *, progress: Progress | None = None) -> Environment:
    """Compare what is installed with the lock, and import what the recipe names. Drift is an answer."""
    found = state(name)
    if found.condition in ("missing", "damaged"):
        return found
    recipe = recipes.load(name)
    place = Path(found.path)
    python = python_of(place)
    installed.cache_clear()
    because = list(found.because)
    try:
        because += drift(recipe, installed(python))
        _selftest(recipe, python, progress or _silent)
    except MoptError as error:
        because += [error.message, *error.cause]
    if not because:
        return found
    condition = "outdated" if found.condition == "outdated" else "damaged"
    return _environment(recipe, condition, marker(place), because)


def drift(recipe: Recipe, found: Installed) -> tuple[str, ...]:
    """What differs from the lock: missing packages and other versions. Further packages are let be."""
    wanted = recipe.pins | {versions.canonical(alias.name): alias.version for alias in recipe.about.aliases}
    lines: list[str] = []
    for name, version in sorted(wanted.items()):
        got = found.packages.get(name)
        if got is None:
            lines.append(f"{name} {version} is missing")
        elif version not in (got, got.partition("+")[0]):  # any build of a pin will do
            lines.append(f"{name} is {got}, the lock has {version}")
    return tuple(lines)


def create(
    name: str,
    *,
    progress: Progress,
    python: Path | None = None,
    from_dir: Path | None = None,
    indexes: Sequence[str] = (),
    again: bool = False,
) -> Environment:
    """Make an environment from its lock, or leave a ready one as it is (unless `again`).

    It is built under a temporary name and gets its own when it is complete and imports what it should.
    `from_dir` is a bundle: nothing is downloaded then. Raises UsageError, HostError and ToolError.
    """
    recipe = recipes.load(name)
    if not again and state(name).condition == "ready":
        return state(name)
    index = pip.Index(recipe, indexes)
    base = base_python(recipe, python)
    _require_platform(recipe)
    _require_room(recipe, recipe.needs.download_bytes if from_dir else 0)
    lock = folder() / f".{recipe.name}.lock"
    with files.locked(lock, waiting=lambda: progress(f"another mopt makes `{recipe.name}`, waiting", None)):
        if not again and state(name).condition == "ready":
            return state(name)
        progress(announce(recipe, from_dir), None)
        with files.building(folder() / recipe.name, replace=True) as place:
            _build(recipe, place, base, index, from_dir, progress)
    installed.cache_clear()
    return state(name)


def ensure(name: str, *, progress: Progress) -> pythons.Interpreter:
    """The interpreter of an environment, which is made first if there is none."""
    try:
        return pythons.interpreter(name)
    except HostError as error:
        if error.reference != "environment-missing":
            raise
    create(name, progress=progress)
    return pythons.interpreter(name)


def commands(
    name: str, *, python: Path | None = None, from_dir: Path | None = None, indexes: Sequence[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The commands that `create` would run."""
    recipe = recipes.load(name)
    place = folder() / recipe.name
    index = pip.FolderIndex(from_dir / "wheels") if from_dir else pip.Index(recipe, indexes)
    return (
        pip.venv(base_python(recipe, python), place),
        *((*index.prefix(), *command) for command in pip.install(python_of(place), recipe.lock, index)),
        pip.compile_all(python_of(place), place),
    )


def remove(name: str) -> int:
    """Remove a made environment, or what an interrupted making left of one; the bytes that this freed.
    UsageError when there is none."""
    wanted = canonical(name)
    place = folder() / wanted
    if not wanted.isidentifier() or not (place.is_dir() or _leftovers(wanted)):
        made = [p.name for p in folder().iterdir() if (p / MARKER).exists()] if folder().is_dir() else []
        raise UsageError(
            f"there is no environment `{name}` here",
            hint=(f"made: {', '.join(sorted(made)) or 'none'}",),
        )
    with files.locked(folder() / f".{wanted}.lock"):
        freed = sum(files.size_bytes(one) for one in (place, *_leftovers(wanted)) if one.is_dir())
        gone = unfinished.beside(place, "removed")
        with files.explained(place):
            if place.is_dir():
                place.rename(gone)
                shutil.rmtree(gone)
        for one in _leftovers(wanted):
            shutil.rmtree(one, ignore_errors=True)
    installed.cache_clear()
    return freed


def announce(recipe: Recipe, from_dir: Path | None = None) -> str:
    """What making it costs, in one line."""
    wanted = recipe.needs
    source = f"reads {from_dir}" if from_dir else f"downloads {show_bytes(wanted.download_bytes)}"
    return (
        f"making the environment `{shown(recipe.name)}` ({len(recipe.packages)} packages): {source}, writes "
        f"{show_bytes(wanted.disk_bytes)} to {folder()}, holds {show_bytes(wanted.memory_bytes)} of RAM"
    )


def shown(name: str) -> str:
    """A name as the command line writes it."""
    return name.replace("_", "-")


def base_python(recipe: Recipe, named: Path | None = None) -> Path:
    """A Python of a version that the lock is for: the named one, this one, else one on PATH."""
    if named is not None:
        path = files.expanded(named).absolute()
        _require_python(recipe, path)
        return path
    candidates = [sys.executable, *(shutil.which(f"python{v}") or "" for v in recipe.about.python)]
    for candidate in filter(None, candidates):
        try:
            _require_python(recipe, Path(candidate))
            return Path(candidate)
        except HostError:
            continue
    wanted = " or ".join(recipe.about.python)
    raise HostError(
        f"`{shown(recipe.name)}` needs Python {wanted}",
        cause=(f"mopt runs on {sys.version_info[0]}.{sys.version_info[1]}, and none of these is on PATH",),
        hint=("name one: `--python /path/to/python`",),
    )


def _require_python(recipe: Recipe, path: Path) -> None:
    version = ".".join(installed(path).python.split(".")[:2])
    if version not in recipe.about.python:
        raise HostError(
            f"`{shown(recipe.name)}` needs Python {' or '.join(recipe.about.python)}",
            cause=(f"{path} is Python {version}: some of the pinned packages have no files for it",),
            hint=("name another: `--python /path/to/python`",),
        )


def _require_platform(recipe: Recipe) -> None:
    here = pythons.here()
    if here not in recipe.about.platforms:
        raise HostError(
            f"`{shown(recipe.name)}` cannot be made on {here}",
            cause=(f"its lock is for {', '.join(recipe.about.platforms)}",),
            hint=("a lock of your own can be put beside: `mopt env create --help` says where",),
        )


def _require_room(recipe: Recipe, wheels_bytes: int = 0) -> None:
    """`wheels_bytes`: what a bundle takes beside it while it is unpacked."""
    wanted = recipe.needs.disk_bytes + wheels_bytes
    files.require_room(folder(), wanted, f"the environment `{shown(recipe.name)}`")


def _build(
    recipe: Recipe, place: Path, base: Path, index: pip.Index, from_dir: Path | None, progress: Progress
) -> None:
    begun = time.monotonic()
    log = folder() / f"{recipe.name}.log"
    log.unlink(missing_ok=True)
    progress("making a virtual environment", None)
    _make_venv(base, place)
    python = python_of(place)
    if from_dir:
        from . import bundles

        with bundles.unpacked(from_dir, recipe, installed(python).python, place, progress) as wheels:
            index = pip.FolderIndex(wheels)
            _install(recipe, python, index, log, progress)
    else:
        pip.require_builds(recipe, python, index, log)
        _install(recipe, python, index, log, progress)
    for alias in recipe.about.aliases:
        _write_alias(alias, place)
    progress("compiling", None)
    processes.run(pip.compile_all(python, place), env=index.environ())
    _selftest(recipe, python, progress)
    _move_paths(place, folder() / recipe.name)
    found = Marker(
        name=recipe.name,
        lock_digest=recipe.digest,
        python=installed(python).python,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=str(from_dir) if from_dir else index.shown(),
        disk_bytes=files.size_bytes(place),
        seconds=round(time.monotonic() - begun, 1),
        packages=recipe.packages,
    )
    files.write_atomic(place / MARKER, msgspec.json.format(msgspec.json.encode(found)))


def _make_venv(base: Path, place: Path) -> None:
    ended = processes.run(pip.venv(base, place), timeout_s=300)
    if ended.code != 0:
        said = tuple(line for line in (ended.stdout + ended.stderr).splitlines() if line.strip())
        raise HostError(
            f"`{base}` cannot make a virtual environment",
            cause=said[-4:],
            hint=("on Debian and Ubuntu the package python3-venv is missing then",),
        )


def _install(recipe: Recipe, python: Path, index: pip.Index, log: Path, progress: Progress) -> None:
    count, done = len(recipe.packages), 0

    def say(line: str) -> None:
        nonlocal done
        if line.startswith(("Collecting ", "Processing ")):
            done += 1
            wanted = line.split()[1].rpartition("/")[2].partition("==")[0].partition("-")[0]
            progress(f"fetching packages: {wanted}", min(0.7, 0.7 * done / count))
        elif line.startswith("Installing collected packages"):
            progress("installing", 0.75)
        elif "Retrying (Retry(" in line:
            progress("the package index does not answer, pip tries again", None)

    for command in pip.install(python, recipe.lock, index):
        pip.call(command, index, log, say)


def _write_alias(alias: recipes.Alias, place: Path) -> None:
    site = next((place / "lib").glob("python*/site-packages"))
    info = site / f"{alias.name.replace('-', '_')}-{alias.version}.dist-info"
    info.mkdir()
    files.write_atomic(
        info / "METADATA",
        f"Metadata-Version: 2.1\nName: {alias.name}\nVersion: {alias.version}\nSummary: {alias.because}\n",
    )
    files.write_atomic(info / "INSTALLER", "mopt\n")
    written = ("METADATA", "INSTALLER", "RECORD")
    files.write_atomic(info / "RECORD", "".join(f"{info.name}/{file},,\n" for file in written))


def _selftest(recipe: Recipe, python: Path, progress: Progress) -> None:
    """Import what the recipe names; a lock that installs is not yet one that works."""
    given = worker.variables(recipe.name, python)
    try:
        worker.run_job(
            python, "selftest", {"imports": recipe.about.imports}, progress, env=given, timeout_s=600
        )
    except MoptError as error:
        raise HostError(
            f"the environment `{shown(recipe.name)}` does not work: {error.message}",
            cause=error.cause,
            hint=(*error.hint, f"make it anew: `mopt env create {shown(recipe.name)} --again`"),
            reference="environment-unusable",
        ) from error


def _move_paths(place: Path, target: Path) -> None:
    """Scripts and settings hold the folder's name: give them the final one."""
    pairs = [(str(place).encode(), str(target).encode()), (place.name.encode(), target.name.encode())]
    for file in [*(place / "bin").iterdir(), place / "pyvenv.cfg"]:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > 1 << 20:
            continue
        content = file.read_bytes()
        if pairs[1][0] in content and b"\0" not in content:
            for old, new in pairs:
                content = content.replace(old, new)
            file.write_bytes(content)


def _leftovers(name: str) -> tuple[Path, ...]:
    """What an interrupted mopt left, or another one is at work in: who holds the lock knows."""
    return tuple(place for place in folder().glob(f".{name}.*-*") if place.is_dir())


def _environment(
    recipe: Recipe, condition: Condition, found: Marker | None = None, because: Iterable[str] = ()
) -> Environment:
    return Environment(
        name=recipe.name,
        title=recipe.about.title,
        condition=condition,
        path=str(folder() / recipe.name),
        needs=recipe.needs,
        python=found.python if found else None,
        made_at=found.made_at if found else None,
        disk_bytes=found.disk_bytes if found else None,
        seconds=found.seconds if found else None,
        because=tuple(because),
    )


def _silent(_text: str, _share: float | None) -> None:
    pass

"""An environment as files: for machines that reach no package index.

A bundle is a folder with `manifest.json` and numbered parts. The parts, one after the other, are the
wheels, one after the other; so every part but the last has exactly the largest size that was allowed.
The manifest has the digest of each part and of each wheel.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import HostError, Progress, UsageError, codec
from model_optimizer.core.units import show_bytes
from model_optimizer.system import files, processes

from . import pip, pythons, versions
from . import recipe as recipes
from .recipe import Recipe

MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_BATCH = 10
_SMALLEST_PART = 1 << 16
_NEWEST_GLIBC = 35
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!-]*\.whl")
_PART = re.compile(r"[a-z][a-z0-9_]*\.\d{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A wheel or a part: its file name, size in bytes and digest."""

    file: str
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of manifest.json. `glibc` is the oldest C library that all wheels run with."""

    name: str
    lock_digest: str
    python: str
    platform: str
    glibc: str | None
    wheels: tuple[Piece, ...]
    parts: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(wheel.bytes for wheel in self.wheels)


def bundle(
    name: str,
    *,
    python_version: str,
    platform: str,
    max_part: int,
    out: Path,
    progress: Progress,
    indexes: Sequence[str] = (),
) -> Bundle:
    """Download the wheels of a lock for a Python and a platform; write them as parts of `max_part` bytes.

    What was downloaded before an interruption is used the next time. Raises UsageError, HostError and
    ToolError.
    """
    recipe = recipes.load(name)
    target = _target(recipe, python_version, platform)
    if max_part < _SMALLEST_PART:
        raise UsageError(f"a part must hold at least {show_bytes(_SMALLEST_PART)}")
    index = pip.Index(recipe, indexes)
    out = out.absolute()
    download = recipe.needs.download_bytes
    files.require_room(out, 2 * download, "the bundle, while it is made,")
    progress(f"bundling `{recipe.name}`: downloads and then writes {show_bytes(download)} to {out}", None)
    with files.building(out) as place:
        downloads = out.with_name(f".{out.name}.downloads")
        found = _download(recipe, target, index, downloads, progress)
        made = _write(recipe, found, python_version, platform, max_part, place, progress)
    shutil.rmtree(downloads, ignore_errors=True)
    return made


def download_commands(
    name: str, *, python_version: str, platform: str, out: Path, indexes: Sequence[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The commands that `bundle` would run, in larger pieces."""
    recipe = recipes.load(name)
    target = _target(recipe, python_version, platform)
    index = pip.Index(recipe, indexes)
    python = _python_with_pip()
    commands: list[tuple[str, ...]] = []
    left = recipe.packages
    for source in index.sources:
        pins = source.pins or left
        left = tuple(pin for pin in left if pin not in pins)
        commands.append((*index.prefix(), *pip.download(python, pins, source, out, target)))
    return tuple(commands)


def read(folder: Path) -> Bundle:
    """The manifest of a bundle, checked. Raises UsageError."""
    if not (folder / MANIFEST).is_file():
        raise UsageError(
            f"`{folder}` holds no bundle",
            cause=(f"there is no {MANIFEST}",),
            hint=("make one where there is an index: `mopt env bundle NAME --out DIR`",),
        )
    found = codec.load(folder / MANIFEST, Bundle)
    names = [piece.file for piece in (*found.wheels, *found.parts)]
    whole = (
        all(_WHEEL.fullmatch(wheel.file) for wheel in found.wheels)
        and all(_PART.fullmatch(part.file) for part in found.parts)
        and all(piece.bytes >= 0 for piece in (*found.wheels, *found.parts))
        and len(names) == len(set(names))
        and found.bytes == sum(part.bytes for part in found.parts)
    )
    if not whole:
        raise _damaged(folder, ["the manifest contradicts itself"])
    return found


@contextmanager
def unpacked(
    folder: Path, recipe: Recipe, python_version: str, place: Path, progress: Progress
) -> Generator[Path]:
    """A folder below `place` with the wheels of a bundle, each checked; it is gone afterwards."""
    found = read(folder)
    _require_fit(found, recipe, python_version, folder)
    _require_parts(found, folder)
    wheels = place / "wheels"
    with files.explained(place, within=place):
        wheels.mkdir()
        stream = _read_parts(found, folder, progress)
        rest = b""
        for wheel in found.wheels:
            rest = _write_wheel(wheel, wheels, rest, stream, folder)
        for _ in stream:  # the last part is checked too
            raise _damaged(folder, ["the parts hold more than the wheels"])
    yield wheels
    shutil.rmtree(wheels)


def _target(recipe: Recipe, python_version: str, platform: str) -> tuple[str, ...]:
    """pip's options for another machine. Wheels for an older C library come first: they run on more."""
    if python_version not in recipe.about.python:
        raise UsageError(
            f"`{recipe.name}` has no lock for Python {python_version}",
            hint=(f"known: {', '.join(recipe.about.python)}",),
        )
    if platform not in recipe.about.platforms:
        raise UsageError(
            f"`{recipe.name}` has no lock for {platform}",
            hint=(f"known: {', '.join(recipe.about.platforms)}",),
        )
    machine = platform.partition("-")[2]
    older = ["manylinux1", "manylinux2010", "manylinux2014"] if machine == "x86_64" else ["manylinux2014"]
    tags = [*older, *(f"manylinux_2_{minor}" for minor in range(5, _NEWEST_GLIBC + 1)), "linux"]
    return (
        f"--python-version={python_version}",
        "--implementation=cp",
        *(f"--platform={tag}_{machine}" for tag in tags),
    )


def _download(
    recipe: Recipe, target: Iterable[str], index: pip.Index, downloads: Path, progress: Progress
) -> list[Path]:
    """One wheel for each pin, in the order of the lock. Those of an earlier try are used."""
    python = _python_with_pip()
    with files.explained(downloads):
        downloads.mkdir(parents=True, exist_ok=True)
    log = downloads / "pip.log"
    total = len(recipe.packages)
    if waiting := [pin for pin in recipe.packages if _wheel_of(pin, downloads) is None]:
        pip.require_builds(recipe, None, index, log, target)
    for source in index.sources:
        wanted = [pin for pin in waiting if pin in (source.pins or waiting)]
        waiting = [pin for pin in waiting if pin not in wanted]
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            progress(f"downloading {batch[0]}", 0.7 * (1 - (len(waiting) + len(wanted) - start) / total))
            command = pip.download(python, batch, source, downloads, target)
            pip.call(command, index, log, lambda _: None)
    found = [_wheel_of(pin, downloads) for pin in recipe.packages]
    if missing := [pin for pin, wheel in zip(recipe.packages, found, strict=True) if wheel is None]:
        raise HostError("pip left packages out", cause=tuple(missing), hint=(f"the whole log: {log}",))
    return [wheel for wheel in found if wheel is not None]


def _wheel_of(pin: str, downloads: Path) -> Path | None:
    """The downloaded wheel of a pin; one that was cut off is removed."""
    name, _, version = pin.partition("==")
    for wheel in sorted(downloads.glob("*.whl")):
        words = wheel.name.split("-")
        same = versions.canonical(words[0]) == versions.canonical(name)
        if same and words[1].partition("+")[0] == version:
            if zipfile.is_zipfile(wheel):
                return wheel
            wheel.unlink()
    return None


def _write(
    recipe: Recipe,
    wheels: Sequence[Path],
    python_version: str,
    platform: str,
    max_part: int,
    place: Path,
    progress: Progress,
) -> Bundle:
    pieces = tuple(
        Piece(file=wheel.name, bytes=wheel.stat().st_size, digest=_digest(wheel)) for wheel in wheels
    )
    parts = _write_parts(wheels, max_part, place / recipe.name, progress)
    made = Bundle(
        name=recipe.name,
        lock_digest=recipe.digest,
        python=python_version,
        platform=platform,
        glibc=_glibc(pieces),
        wheels=pieces,
        parts=parts,
    )
    files.write_atomic(place / MANIFEST, codec.dumps(made))
    return made


def _write_parts(wheels: Sequence[Path], size: int, stem: Path, progress: Progress) -> tuple[Piece, ...]:
    """The wheels, one after the other, cut into files of `size` bytes; little is in memory at a time."""
    total = sum(wheel.stat().st_size for wheel in wheels)
    content = _chunks(wheels)
    parts: list[Piece] = []
    rest = b""
    while len(parts) * size < total:
        part = stem.with_name(f"{stem.name}.{len(parts) + 1:03d}")
        progress(f"writing {part.name}", 0.7 + 0.3 * len(parts) * size / total)
        seen, left = hashlib.sha256(), size
        with part.open("xb") as out:
            while left and (chunk := rest or next(content, b"")):
                used, rest = chunk[:left], chunk[left:]
                out.write(used)
                seen.update(used)
                left -= len(used)
        parts.append(Piece(file=part.name, bytes=size - left, digest=f"sha256:{seen.hexdigest()}"))
    return tuple(parts)


def _chunks(wheels: Iterable[Path]) -> Iterator[bytes]:
    for wheel in wheels:
        with wheel.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk


def _glibc(wheels: Iterable[Piece]) -> str | None:
    """The newest of what each wheel needs at least."""
    needed = [
        min(minors)
        for wheel in wheels
        if (minors := [int(n) for n in re.findall(r"manylinux_2_(\d+)", wheel.file)])
    ]
    return f"2.{max(needed)}" if needed else None


def _require_fit(found: Bundle, recipe: Recipe, python_version: str, folder: Path) -> None:
    here = pythons.here()
    version = ".".join(python_version.split(".")[:2])
    glibc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    ours = glibc.split()[-1] if glibc else None
    problems = [
        (found.name != recipe.name, f"it is of `{found.name}`, not `{recipe.name}`"),
        (found.platform != here, f"it is for {found.platform}, this machine is {here}"),
        (found.python != version, f"it is for Python {found.python}, this one is {version}"),
        (found.lock_digest != recipe.digest, "it is of another version of the lock"),
        (
            bool(found.glibc and ours and versions.release(ours) < versions.release(found.glibc)),
            f"it needs glibc {found.glibc}, this machine has {ours}",
        ),
    ]
    if causes := tuple(text for wrong, text in problems if wrong):
        raise UsageError(
            f"the bundle in `{folder}` does not fit",
            cause=causes,
            hint=(f"make another: `mopt env bundle {recipe.name} --python {version} --platform {here}`",),
        )


def _require_parts(found: Bundle, folder: Path) -> None:
    """All parts are there and whole in size: known before minutes of work."""
    wrong: list[str] = []
    for part in found.parts:
        place = folder / part.file
        if not place.is_file():
            wrong.append(f"{part.file} is missing")
        elif (size := place.stat().st_size) != part.bytes:
            wrong.append(f"{part.file} holds {size} bytes, not {part.bytes}")
    if wrong:
        raise _damaged(folder, wrong)


def _read_parts(found: Bundle, folder: Path, progress: Progress) -> Iterator[bytes]:
    """The content of all parts; each is checked at its end."""
    for number, part in enumerate(found.parts):
        progress(f"reading part {number + 1} of {len(found.parts)}", number / len(found.parts))
        seen = hashlib.sha256()
        with (folder / part.file).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                seen.update(chunk)
                yield chunk
        if f"sha256:{seen.hexdigest()}" != part.digest:
            raise _damaged(folder, [f"{part.file} has another content than when it was made"])


def _write_wheel(wheel: Piece, wheels: Path, rest: bytes, stream: Iterator[bytes], folder: Path) -> bytes:
    """Write one wheel from the stream; what was read beyond it is returned."""
    seen, left = hashlib.sha256(), wheel.bytes
    with (wheels / wheel.file).open("xb") as out:
        while left:
            chunk = rest or next(stream, b"")
            if not chunk:
                raise _damaged(folder, ["the parts hold less than the wheels"])
            used, rest = chunk[:left], chunk[left:]
            out.write(used)
            seen.update(used)
            left -= len(used)
    if f"sha256:{seen.hexdigest()}" != wheel.digest:
        raise _damaged(folder, [f"{wheel.file} does not come out as it went in"])
    return rest


def _damaged(folder: Path, causes: Iterable[str]) -> UsageError:
    return UsageError(
        f"the bundle in `{folder}` is damaged",
        cause=tuple(causes),
        hint=("copy these files again, or make the bundle again",),
        reference="bundle-damaged",
    )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _python_with_pip() -> Path:
    if importlib.util.find_spec("pip"):
        return Path(sys.executable)
    for name in ("python3", "python"):
        found = shutil.which(name)
        if found and processes.run([found, "-I", "-m", "pip", "--version"], timeout_s=60).code == 0:
            return Path(found)
    raise HostError("no Python with pip was found", hint=("on Debian and Ubuntu: apt install python3-pip",))

"""Files and folders are whole or not there."""

import errno
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from model_optimizer.core import HostError, UsageError
from model_optimizer.system import files, unfinished


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_write_atomic_writes_text_and_bytes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "new" / "plan.json"
    files.write_atomic(target, "zwölf\n")
    assert target.read_text(encoding="utf-8") == "zwölf\n"
    files.write_atomic(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert names(target.parent) == ["plan.json"]


def test_write_atomic_keeps_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(HostError, match="is full") as caught:
        files.write_atomic(target, "new")
    assert caught.value.reference == "disk-full"
    assert target.read_text() == "old"
    assert names(tmp_path) == ["plan.json"]


def test_write_atomic_follows_a_link_and_writes_into_a_device(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    files.write_atomic(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    files.write_atomic(Path(os.devnull), "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_place_below_a_file_is_a_host_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot be written"):
        files.write_atomic(tmp_path / "file" / "below", "x")
    with (
        pytest.raises(HostError, match="cannot be written"),
        files.building(tmp_path / "file" / "below"),
    ):
        pass


def test_building_gives_the_name_only_when_all_went_well(tmp_path: Path) -> None:
    out = tmp_path / "artifact"
    with files.building(out) as made:
        assert made.parent == tmp_path
        assert not out.exists()
        (made / "weights").write_text("w")
    assert names(tmp_path) == ["artifact"]
    assert names(out) == ["weights"]


@pytest.mark.parametrize("failure", [ValueError("bug"), KeyboardInterrupt()])
def test_building_leaves_nothing_after_a_failure(tmp_path: Path, failure: BaseException) -> None:
    out = tmp_path / "artifact"

    def make() -> None:
        with files.building(out) as made:
            (made / "weights").write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        make()
    assert names(tmp_path) == []


def test_building_translates_a_full_disk_but_not_a_bug(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught, files.building(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.reference == "disk-full"
    with pytest.raises(FileNotFoundError), files.building(tmp_path / "a"):
        (tmp_path / "nowhere").read_text()
    assert names(tmp_path) == []


def test_building_never_removes_what_the_user_had_there(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis").write_text("years of work")
    with pytest.raises(UsageError, match="exists already"), files.building(out):
        pass
    assert (out / "thesis").read_text() == "years of work"


def test_building_replaces_when_told_and_keeps_the_old_one_on_failure(tmp_path: Path) -> None:
    out = tmp_path / "env"
    out.mkdir()
    (out / "old").touch()
    with pytest.raises(RuntimeError), files.building(out, replace=True):
        raise RuntimeError
    assert names(out) == ["old"]
    with files.building(out, replace=True) as made:
        (made / "new").touch()
    assert names(out) == ["new"]
    assert names(tmp_path) == ["env"]


def test_an_empty_folder_may_be_built_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with files.building(tmp_path / "out") as made:
        (made / "x").touch()
    assert names(tmp_path / "out") == ["x"]


def test_a_temporary_folder_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with files.temporary() as place:
        (place / "x").touch()
    assert not place.exists()
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(HostError, match="no temporary folder"), files.temporary():
        pass


OWNER = """
import sys, time
from pathlib import Path
from model_optimizer.system import files
with getattr(files, sys.argv[1])(*map(Path, sys.argv[2:])) as place:
    print(place, flush=True)
    time.sleep(600)
"""


@contextmanager
def owner(*words: str | Path, tmp: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process in one of the folders, killed in the end."""
    env = {**os.environ, **({"TMPDIR": str(tmp)} if tmp else {})}
    other = subprocess.Popen(
        [sys.executable, "-c", OWNER, *words], stdout=subprocess.PIPE, text=True, env=env
    )
    assert other.stdout
    with other:
        try:
            yield other, Path(other.stdout.readline().strip())
        finally:
            other.kill()


def test_a_temporary_folder_of_a_killed_owner_goes_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    mine = ("mopt-my-own-run", "mopt-abcdefgh.tmp", "mopt-0123abcd-0123abcd.tmp")
    for name in mine:
        (tmp_path / name).mkdir()
    with owner("temporary", tmp=tmp_path) as (other, left):
        with files.temporary():
            assert left.is_dir(), "its owner lives"
        other.kill()
        other.wait()
        assert left.is_dir()
        with files.temporary() as place:
            assert place.stat().st_mode & 0o777 == 0o700
            assert names(tmp_path) == sorted([*mine, place.name])


@pytest.mark.parametrize("doing", ["building", "between"])
def test_what_a_killed_builder_left_goes_when_the_same_is_built_again(tmp_path: Path, doing: str) -> None:
    out = tmp_path / "out (1)"
    others = (".out.building-1-0123abcd", ".out (1).building-0123abcd-1-0123abcd")  # of another machine
    for name in others:
        (tmp_path / name).mkdir()
    with owner(doing, out) as (builder, left):
        (left / "weights").touch()
        with suppress(ZeroDivisionError), files.building(out):
            assert left.is_dir(), "it is still built"
            raise ZeroDivisionError
        builder.kill()
        builder.wait()
    with files.building(out):
        assert not left.exists()
    assert names(tmp_path) == sorted([*others, out.name])


def test_what_another_machine_builds_in_a_shared_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process number may be anybody's here, and its lock is not always seen."""
    left = unfinished.beside(tmp_path / "out", "building")
    left.mkdir()
    monkeypatch.setattr(unfinished, "origin", lambda: "0123abcd")
    with files.building(tmp_path / "out"):
        pass
    assert left.is_dir()
    monkeypatch.undo()
    unfinished.sweep(tmp_path / "out")
    assert not left.exists()


def test_where_there_are_no_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = unfinished.beside(tmp_path / "out", "building")
    left.mkdir()
    monkeypatch.setattr(unfinished, "lock", lambda _folder: False)
    with files.building(tmp_path / "out") as place:
        (place / "x").touch()
    assert left.is_dir()
    assert names(tmp_path / "out") == ["x"]


def test_a_folder_is_locked_until_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that is built at the same place sweeps at the worst moment."""
    rename = files.rename_into_place

    def late(temporary: Path, path: Path, *, replace: bool) -> None:
        unfinished.sweep(path)
        rename(temporary, path, replace=replace)

    monkeypatch.setattr(files, "rename_into_place", late)
    with files.building(tmp_path / "out") as place:
        (place / "weights").touch()
    assert names(tmp_path / "out") == ["weights"]


def test_a_folder_without_its_name_yet_goes_when_it_is_old(tmp_path: Path) -> None:
    """It may be one that is about to be locked."""
    early = unfinished.beside(tmp_path / "out", "building")
    early = early.with_name(f"{early.name}.new")
    early.mkdir()
    unfinished.sweep(tmp_path / "out")
    assert early.is_dir()
    os.utime(early, (1, 1))
    unfinished.sweep(tmp_path / "out")
    assert not early.exists()


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_replaced_when_the_power_went_gets_its_name_back(tmp_path: Path, taken: bool) -> None:
    out = tmp_path / "env"
    old = unfinished.beside(out, "replaced")
    old.mkdir()
    (old / "old").touch()
    if taken:
        out.mkdir()
        (out / "new").touch()
    unfinished.sweep(out)
    assert names(tmp_path) == ["env"]
    assert names(out) == ["new" if taken else "old"]


@pytest.mark.parametrize("letter", ["n", "\N{CJK UNIFIED IDEOGRAPH-8A9E}"])
def test_the_longest_name_can_be_built_and_written(tmp_path: Path, letter: str) -> None:
    out = tmp_path / (letter * (255 // len(letter.encode())))
    other = unfinished.beside(out.with_name(f"{out.name[:-1]}-"), "building")
    other.mkdir()
    with files.building(out) as place:
        (place / "x").touch()
    files.write_atomic(out / out.name, "text")
    assert names(out) == sorted(["x", out.name])
    assert other.is_dir(), "it only begins alike"


def test_room_is_asked_of_the_disk_that_will_hold_it(tmp_path: Path) -> None:
    place = tmp_path / "not" / "yet"
    free = files.free_bytes(place)
    assert free is not None
    files.require_room(place, free // 2, "the environment")
    with pytest.raises(HostError, match="the environment needs") as caught:
        files.require_room(place, 1 << 60, "the environment")
    assert caught.value.reference == "disk-full"
    assert caught.value.exit_code == 3


def test_size_counts_a_hard_link_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    once = files.size_bytes(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    assert files.size_bytes(tmp_path) == once
    assert once >= 100_000


def test_data_home_follows_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOPT_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert files.data_home() == tmp_path / "model-optimizer"
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "mine"))
    assert files.data_home() == tmp_path / "mine"


@pytest.mark.parametrize("named", ["", "relative/place"])
def test_a_home_that_is_no_place_is_what_the_system_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    monkeypatch.delenv("MOPT_HOME", raising=False)
    monkeypatch.setenv("HOME", named)
    monkeypatch.setenv("XDG_DATA_HOME", named)
    known = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert files.home() == known
    assert files.data_home().is_relative_to(known)


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that nobody has."""
    monkeypatch.delenv("MOPT_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(HostError, match="user 4000000000 has no home folder") as caught:
        files.data_home()
    assert "MOPT_HOME" in caught.value.hint[0]
    assert files.expanded("~/models") == Path("~/models")


def test_the_home_of_a_user_that_is_not_there_is_a_plain_name() -> None:
    assert files.expanded("~no-such-user/model") == Path("~no-such-user/model")
    assert files.expanded("~/model") == Path.home() / "model"


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys; from pathlib import Path; from model_optimizer.system import files\n"
        "with files.locked(Path(sys.argv[1]), waiting=lambda: print('waiting', flush=True)):\n"
        "    print('held', flush=True)\n"
    )
    with files.locked(lock):
        other = subprocess.Popen([sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE, text=True)
        assert other.stdout
        assert other.stdout.readline() == "waiting\n"
    assert other.stdout.readline() == "held\n"
    other.stdout.close()
    assert other.wait(timeout=30) == 0

"""Environments are made whole or not at all. A real pip installs hand-made wheels from a folder: no network."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from model_optimizer.core import HostError, ToolError, UsageError
from model_optimizer.system import environments
from model_optimizer.system.environments import bundles, pip, pythons

ABOUT = """
title = "Two small packages"
python = ["3.11", "3.12", "3.13"]
platforms = ["linux-x86_64", "linux-aarch64"]
essential = ["mopt-one >=1"]
imports = ["mopt_one"]
needs = { download = "1KiB", disk = "1KiB", memory = "1KiB" }
indexes = { other = { url = "https://other.example/simple", packages = ["mopt-two"] } }
aliases = [{ name = "mopt-alias", version = "9+x", because = "a tool looks for it" }]
"""
LOCK = "mopt-one==1.0\nmopt_two==2.0\n"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def put_wheel(index: Path, name: str, version: str, content: str, *, filler: bytes = b"") -> Path:
    """A wheel of one module, in a folder that pip takes for an index."""
    module = name.replace("-", "_")
    folder = index / name.replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    info = f"{module}-{version}.dist-info"
    written = {
        f"{module}.py": content.encode(),
        f"{module}_data.bin": filler,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-script = {module}:main\n".encode(),
    }
    record = "".join(f"{path},,\n" for path in [*written, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in {**written, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(path, data)
    links = "".join(f'<a href="{p.name}">{p.name}</a>' for p in sorted(folder.glob("*.whl")))
    (folder / "index.html").write_text(f"<html><body>{links}</body></html>")
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip asks a folder on this disk and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    folder = tmp_path / "simple"
    put_wheel(folder, "mopt-one", "1.0", "import sys\ndef main(): print('one', sys.prefix)\n")
    put_wheel(folder, "mopt_two", "2.0", "main = None\n", filler=os.urandom(200_000))
    monkeypatch.setenv("PIP_INDEX_URL", folder.as_uri())
    return folder


@pytest.fixture
def small(mopt_home: Path, own_environments: Path, index: Path) -> str:
    put_recipe(mopt_home)
    return "small"


def put_recipe(home: Path, *, about: str = ABOUT, lock: str = LOCK) -> None:
    folder = home / "locks" / "small"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "about.toml").write_text(about)
    (folder / "packages.lock").write_text(lock)


def silent(_text: str, _share: float | None) -> None:
    pass


def left_in(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} - {".small.lock", "small.log"}


def test_an_environment_is_made_checked_used_and_removed(small: str, own_environments: Path) -> None:
    said: list[str] = []
    made = environments.create(small, progress=lambda text, _: said.append(text))
    assert made.condition == "ready"
    assert made.python
    assert made.python.startswith(PYTHON)
    assert made.disk_bytes
    assert said[0].startswith("making the environment `small` (2 packages): downloads 1 KiB, writes 1 KiB")
    assert "importing mopt_one" in said
    assert left_in(own_environments) == {"small"}

    chosen = environments.interpreter(small)
    assert chosen == environments.Interpreter(path=own_environments / "small/bin/python", origin="made")
    result = environments.run_worker(small, "selftest", {"imports": ["mopt_one", "mopt_two"]}, silent)
    assert result["packages"]["mopt-alias"] == "9+x"
    assert environments.check(small) == made

    again = environments.create(small, progress=lambda text, _: pytest.fail(text))
    assert again == made
    assert environments.remove(small) > 0
    assert environments.state(small).condition == "missing"
    assert left_in(own_environments) == set()
    with pytest.raises(UsageError, match="no environment `small` here"):
        environments.remove(small)


def test_scripts_work_under_the_final_name(small: str, own_environments: Path) -> None:
    environments.create(small, progress=silent)
    script = own_environments / "small" / "bin" / "mopt-one-script"
    ran = subprocess.run([script], capture_output=True, text=True, check=True)
    assert ran.stdout == f"one {own_environments / 'small'}\n"
    for file in (own_environments / "small" / "bin").iterdir():
        if not file.is_symlink():
            assert b"building-" not in file.read_bytes()


def test_drift_is_noticed(small: str, own_environments: Path, mopt_home: Path) -> None:
    environments.create(small, progress=silent)
    site = next((own_environments / "small" / "lib").glob("python*/site-packages"))
    (site / "mopt_two-2.0.dist-info").rename(site / "mopt_two-2.5.dist-info")
    metadata = site / "mopt_two-2.5.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("2.0", "2.5"))
    found = environments.check(small)
    assert (found.condition, found.because) == ("damaged", ("mopt-two is 2.5, the lock has 2.0",))
    (site / "mopt_two-2.5.dist-info").rename(site / "gone")
    (site / "mopt_one.py").unlink()
    assert "mopt-two 2.0 is missing" in environments.check(small).because
    (site / "mopt_two-2.0.dist-info").mkdir()
    (site / "mopt_two-2.0.dist-info" / "METADATA").write_text("Name: mopt-two\nVersion: 2.0\n")
    found = environments.check(small)
    assert found.because[0] == "the environment `small` does not work: `mopt_one` cannot be imported"
    (own_environments / "small" / "bin" / "python").unlink()
    assert environments.state(small).condition == "damaged"


def test_another_lock_makes_it_outdated_and_create_makes_it_anew(
    small: str, mopt_home: Path, index: Path, own_environments: Path
) -> None:
    environments.create(small, progress=silent)
    put_wheel(index, "mopt-one", "1.1", "NEW = True\nmain = None\n")
    put_recipe(mopt_home, lock=LOCK.replace("1.0", "1.1"))
    found = environments.check(small)
    assert (found.condition, found.because[1]) == ("outdated", "mopt-one is 1.0, the lock has 1.1")
    assert environments.state(small).condition == "outdated"
    assert environments.interpreter(small).origin == "made"  # its essential packages still fit
    put_recipe(mopt_home, lock=LOCK.replace("1.0", "1.1"), about=ABOUT.replace(">=1", ">=1.1"))
    with pytest.raises(HostError, match="from another version"):
        environments.interpreter(small)
    assert environments.create(small, progress=silent).condition == "ready"
    result = environments.run_worker(small, "selftest", {}, silent)
    assert result["packages"]["mopt-one"] == "1.1"
    assert left_in(own_environments) == {"small"}


def test_a_lock_that_cannot_be_met_leaves_nothing(
    small: str, mopt_home: Path, own_environments: Path
) -> None:
    put_recipe(mopt_home, lock="mopt-one==7.0\n")
    with pytest.raises(HostError, match="the lock cannot be met here") as caught:
        environments.create(small, progress=silent)
    assert "mopt-one==7.0" in " ".join(caught.value.cause)
    assert str(own_environments / "small.log") in caught.value.hint[-1]
    assert "mopt-one" in (own_environments / "small.log").read_text()
    assert left_in(own_environments) == set()


def test_the_old_one_stays_when_the_new_one_fails(
    small: str, mopt_home: Path, own_environments: Path
) -> None:
    environments.create(small, progress=silent)
    put_recipe(mopt_home, lock="mopt-one==7.0\n")
    with pytest.raises(HostError):
        environments.create(small, progress=silent, again=True)
    assert environments.run_worker(small, "selftest", {"imports": ["mopt_one"]}, silent)["imports"]
    assert left_in(own_environments) == {"small"}


def test_packages_that_do_not_import_are_no_environment(
    small: str, index: Path, own_environments: Path
) -> None:
    put_wheel(index, "mopt-one", "1.0", "raise OSError('libcudart.so.13: cannot open shared object file')\n")
    with pytest.raises(HostError, match="does not work: `mopt_one` cannot be imported") as caught:
        environments.create(small, progress=silent)
    assert "libcudart" in caught.value.cause[0]
    assert left_in(own_environments) == set()


def test_nothing_is_begun_without_room(small: str, mopt_home: Path, own_environments: Path) -> None:
    put_recipe(mopt_home, about=ABOUT.replace('disk = "1KiB"', 'disk = "900000TiB"'))
    for call in (environments.needs, lambda name: environments.create(name, progress=silent)):
        with pytest.raises(HostError, match="the environment `small` needs") as caught:
            call(small)
        assert caught.value.reference == "disk-full"
    assert not own_environments.exists()


def test_a_python_or_a_machine_without_a_lock_is_refused(small: str, mopt_home: Path) -> None:
    put_recipe(mopt_home, about=ABOUT.replace('python = ["3.11", "3.12", "3.13"]', 'python = ["2.7"]'))
    for python in (None, Path(sys.executable)):
        with pytest.raises(HostError, match=r"needs Python 2\.7"):
            environments.create(small, progress=silent, python=python)
    put_recipe(mopt_home, about=ABOUT.replace('"linux-x86_64", "linux-aarch64"', '"plan9-mips"'))
    with pytest.raises(HostError, match="cannot be made on"):
        environments.create(small, progress=silent)


def test_what_a_killed_making_left_can_be_removed(small: str, own_environments: Path) -> None:
    left = own_environments / ".small.building-1-0123abcd"
    left.mkdir(parents=True)
    (left / "wheel").write_bytes(bytes(100_000))
    assert environments.remove("small") >= 100_000
    assert not left.exists()
    with pytest.raises(UsageError, match="there is no environment `small` here"):
        environments.remove("small")


def test_an_interrupted_making_leaves_nothing_usable(small: str, own_environments: Path, index: Path) -> None:
    """One mopt is killed in the middle; the next one clears up and goes through."""
    put_wheel(index, "mopt-one", "1.0", "import time\ntime.sleep(600)\n")
    script = (
        "from model_optimizer.system import environments\n"
        "environments.create('small', progress=lambda text, share: print(text, flush=True))\n"
    )
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout
        while "importing" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, number)
        assert process.wait(60) != 0
        process.stdout.close()
        assert environments.state(small).condition == "missing"
        assert bool(left_in(own_environments)) == (number == signal.SIGKILL)
    put_wheel(index, "mopt-one", "1.0", "main = None\n")
    assert environments.create(small, progress=silent).condition == "ready"
    assert left_in(own_environments) == {"small"}


def test_two_at_once_make_it_once(small: str, own_environments: Path) -> None:
    script = (
        "from model_optimizer.system import environments\n"
        "print(environments.create('small', progress=lambda text, share: print(text, flush=True)).made_at)\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0].splitlines()[-1] == told[1].splitlines()[-1]
    assert sum("making the environment" in text for text in told) == 1


def test_ensure_makes_what_is_missing(small: str) -> None:
    assert environments.ensure(small, progress=silent).origin == "made"
    assert environments.ensure(small, progress=lambda text, _: pytest.fail(text)).origin == "made"


def test_indexes(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = environments.load(small)
    assert pip.Index(found).environ()["PIP_INDEX_URL"] == os.environ["PIP_INDEX_URL"]
    named = pip.Index(found, ["other"])
    first, rest = pip.install(Path("python"), Path("lock"), named)
    assert first[-2:] == ("--index-url=https://other.example/simple", "mopt_two==2.0")
    assert rest[-2:] == ("-r", "lock")
    assert "https://other.example/simple" not in rest
    secret = pip.Index(found, ["https://me:secret@mirror.example/simple"])
    assert secret.environ()["PIP_INDEX_URL"] == "https://me:secret@mirror.example/simple"
    assert secret.shown() == "https://mirror.example/simple"
    assert "secret" not in str(pip.install(Path("python"), Path("lock"), secret))
    monkeypatch.setenv("MOPT_INDEX", "other")
    assert pip.Index(found).sources == named.sources
    for wrong in (["nope"], ["https://a", "https://b"]):
        with pytest.raises(UsageError):
            pip.Index(found, wrong)


def test_settings_of_pip_that_would_lead_astray_are_not_handed_on(
    small: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    assert environments.create(small, progress=silent).condition == "ready"
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def picky(small: str, mopt_home: Path, tmp_path: Path) -> Path:
    """The lock wants the `right` build of mopt-two; only an index of its own has it."""
    other = tmp_path / "other"
    about = ABOUT.replace("https://other.example/simple", other.as_uri())
    put_recipe(mopt_home, about=about + '[builds]\nmopt-two = "right"\n')
    put_wheel(other, "mopt_two", "2.0+right", "main = None\n")
    put_wheel(other, "mopt-one", "1.0", "raise SystemExit('from an index that was not to be asked')\n")
    return other


def test_a_build_that_cannot_work_is_refused_before_it_is_downloaded(
    picky: Path, own_environments: Path, tmp_path: Path
) -> None:
    for call in (lambda: environments.create("small", progress=silent), lambda: make_bundle(tmp_path / "b")):
        with pytest.raises(HostError, match="needs the `right` build of mopt-two") as caught:
            call()
        assert caught.value.cause[0] == "mopt_two-2.0-py3-none-any.whl"
        assert caught.value.hint == ("take it from the index that has it: `--index other`",)
    assert left_in(own_environments) == set()


def test_a_named_index_is_asked_for_its_own_packages_only(picky: Path, tmp_path: Path) -> None:
    environments.create("small", progress=silent, indexes=["other"])
    result = environments.run_worker("small", "selftest", {"imports": ["mopt_one", "mopt_two"]}, silent)
    assert result["packages"]["mopt_two"] == "2.0+right"
    assert environments.check("small").condition == "ready"
    made = environments.bundle(
        "small",
        python_version=PYTHON,
        platform=pythons.here(),
        max_part=1 << 20,
        out=tmp_path / "bundle",
        progress=silent,
        indexes=["other"],
    )
    assert {wheel.file.split("-")[1] for wheel in made.wheels} == {"1.0", "2.0+right"}
    environments.remove("small")
    assert environments.create("small", progress=silent, from_dir=tmp_path / "bundle").condition == "ready"


@pytest.mark.parametrize(
    ("line", "kind", "reference"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", HostError, "disk-full"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", HostError, "index-unreachable"),
        ("ERROR: No matching distribution found for torch==2.13.0", HostError, "lock-not-met"),
        ("ERROR: something else", ToolError, "tool-failed"),
    ],
)  # fmt: skip
def test_what_pip_says_is_understood(
    small: str, tmp_path: Path, line: str, kind: type, reference: str
) -> None:
    error = pip.explain((line,), 1, tmp_path / "log", pip.Index(environments.load(small)))
    assert type(error) is kind
    assert error.reference == reference
    assert "log" in error.hint[-1]


def test_dry_run_names_the_commands_and_runs_none(small: str, own_environments: Path) -> None:
    commands = environments.commands(small, indexes=["other"])
    assert [command[1:4] for command in commands] == [
        ("-I", "-m", "venv"), ("-I", "-m", "pip"), ("-I", "-m", "pip"), ("-I", "-m", "compileall"),
    ]  # fmt: skip
    assert "--no-deps" in commands[1]
    mirror = environments.commands(small, indexes=["https://me:secret@mirror.example/simple"])
    assert mirror[1][:2] == ("env", "PIP_INDEX_URL=https://mirror.example/simple")
    download = environments.download_commands(
        small, python_version=PYTHON, platform="linux-x86_64", out=Path("out"), indexes=["other"]
    )
    assert [command[-1] for command in download] == ["mopt_two==2.0", "mopt-one==1.0"]
    assert not own_environments.exists()


# bundles


def make_bundle(out: Path, *, max_part: int = 1 << 16) -> environments.Bundle:
    return environments.bundle(
        "small", python_version=PYTHON, platform=pythons.here(), max_part=max_part, out=out, progress=silent
    )


def test_a_bundle_installs_where_there_is_no_index(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_environments: Path
) -> None:
    out = tmp_path / "bundle"
    made = make_bundle(out)
    assert [part.bytes for part in made.parts[:-1]] == [1 << 16] * (len(made.parts) - 1)
    assert len(made.parts) == 4
    assert {p.name for p in out.iterdir()} == {"manifest.json", *(f"small.00{n}" for n in (1, 2, 3, 4))}
    assert sum(p.stat().st_size for p in out.glob("small.*")) == made.bytes
    assert json.loads((out / "manifest.json").read_text())["schema"] == "bundle/1"
    assert {p.name for p in tmp_path.iterdir()} == {"bundle", "simple"}
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/nowhere")
    assert environments.create(small, progress=silent, from_dir=out).condition == "ready"
    assert not (own_environments / "small" / "wheels").exists()
    assert environments.run_worker(small, "selftest", {"imports": ["mopt_one", "mopt_two"]}, silent)[
        "imports"
    ]


def test_an_interrupted_bundle_goes_on_where_it_was(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Path, mopt_home: Path
) -> None:
    put_recipe(mopt_home, lock=LOCK + "mopt-three==3.0\n")
    monkeypatch.setattr(bundles, "_BATCH", 1)
    out = tmp_path / "bundle"
    with pytest.raises(HostError, match="the lock cannot be met here"):
        make_bundle(out)
    assert not out.exists()
    kept = tmp_path / ".bundle.downloads"
    assert len(list(kept.glob("*.whl"))) == 2
    cut = next(kept.glob("mopt_two*"))
    cut.write_bytes(cut.read_bytes()[:1000])
    put_wheel(index, "mopt-three", "3.0", "main = None\n")
    said: list[str] = []
    environments.bundle(
        "small",
        python_version=PYTHON,
        platform=pythons.here(),
        max_part=1 << 20,
        out=out,
        progress=lambda text, _: said.append(text),
    )
    assert [text for text in said if text.startswith("downloading")] == [
        "downloading mopt_two==2.0",
        "downloading mopt-three==3.0",
    ]
    assert not kept.exists()


def damage_missing(out: Path) -> str:
    (out / "small.002").unlink()
    return "small.002 is missing"


def damage_short(out: Path) -> str:
    part = out / "small.003"
    part.write_bytes(part.read_bytes()[:-1])
    return "small.003 holds 65535 bytes, not 65536"


def damage_bit(out: Path) -> str:
    part = out / "small.004"
    part.write_bytes(bytes([part.read_bytes()[0] ^ 1]) + part.read_bytes()[1:])
    return "small.004 has another content|does not come out as it went in"


def damage_wheel(out: Path) -> str:
    """All parts are as the manifest says, but a wheel is not."""
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["wheels"][0]["digest"] = "sha256:0"
    (out / "manifest.json").write_text(json.dumps(manifest))
    return "mopt_one-1.0-py3-none-any.whl does not come out"


def damage_path(out: Path) -> str:
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["wheels"][0]["file"] = "../../evil.whl"
    (out / "manifest.json").write_text(json.dumps(manifest))
    return "the manifest contradicts itself"


def damage_size(out: Path) -> str:
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["wheels"][0]["bytes"] += 1
    (out / "manifest.json").write_text(json.dumps(manifest))
    return "the manifest contradicts itself"


@pytest.mark.parametrize(
    "damage", [damage_missing, damage_short, damage_bit, damage_wheel, damage_path, damage_size]
)
def test_a_damaged_bundle_is_refused(small: str, tmp_path: Path, own_environments: Path, damage) -> None:
    out = tmp_path / "bundle"
    make_bundle(out)
    wanted = damage(out)
    with pytest.raises(UsageError, match="is damaged") as caught:
        environments.create(small, progress=silent, from_dir=out)
    assert any(text in caught.value.cause[0] for text in wanted.split("|"))
    assert left_in(own_environments) == set()


@pytest.mark.parametrize("content", [None, "{", "[]", '{"schema": "plan/1"}', '{"name": "small"}'])
def test_a_folder_without_a_bundle_is_refused(small: str, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UsageError):
        environments.create(small, progress=silent, from_dir=tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("name", "large", "it is of `large`, not `small`"),
        ("python", "3.99", "it is for Python 3.99"),
        ("platform", "plan9-mips", "it is for plan9-mips"),
        ("lock_digest", "sha256:0", "it is of another version of the lock"),
        ("glibc", "2.99", "it needs glibc 2.99"),
    ],
)
def test_a_bundle_for_something_else_is_refused(
    small: str, tmp_path: Path, field: str, value: str, cause: str
) -> None:
    out = tmp_path / "bundle"
    make_bundle(out)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest[field] = value
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="does not fit") as caught:
        environments.create(small, progress=silent, from_dir=out)
    assert caught.value.cause[0].startswith(cause)


def test_a_bundle_is_only_made_for_what_the_lock_is_for(small: str, tmp_path: Path) -> None:
    for python, platform, part in (
        ("3.1", "linux-x86_64", 1 << 20),
        (PYTHON, "win", 1 << 20),
        (PYTHON, "linux-x86_64", 1),
    ):
        with pytest.raises(UsageError):
            environments.bundle(
                small,
                python_version=python,
                platform=platform,
                max_part=part,
                out=tmp_path / "b",
                progress=silent,
            )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    with pytest.raises(UsageError, match="exists already"):
        make_bundle(tmp_path / "mine")


def test_the_newest_glibc_that_is_needed() -> None:
    def piece(file: str) -> bundles.Piece:
        return bundles.Piece(file=file, bytes=1, digest="")

    old = piece("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    new = piece("b-1-cp311-cp311-manylinux_2_31_x86_64.manylinux_2_28_x86_64.whl")
    assert bundles._glibc([old, new]) == "2.28"
    assert bundles._glibc([piece("c-1-py3-none-any.whl")]) is None


# the real ones


@pytest.mark.engine
def test_the_onnx_environment_is_as_its_lock(onnx_env_python: Path) -> None:
    result = environments.run_worker(
        "onnx", "selftest", {"imports": ["torch", "onnxruntime"]}, silent, python=onnx_env_python
    )
    assert result["packages"]["torch"].startswith("2.13.0")
    assert result["peak_memory_bytes"] > 50_000_000

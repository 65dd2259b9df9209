"""Which interpreter does the work, what a job is handed, and what becomes of its failures."""

import json
import os
import signal
import sys
import venv
from contextlib import nullcontext
from pathlib import Path

import pytest

from model_optimizer.core import HostError, MoptError, NoFeasiblePlan, ToolError, UsageError
from model_optimizer.system import environments, processes, unfinished
from model_optimizer.system.environments import pythons, recipe, versions, worker

ABOUT = """
title = "A small one"
python = ["3.11", "3.12", "3.13"]
platforms = ["linux-x86_64", "linux-aarch64"]
essential = ["click >=8"]
imports = ["json"]
variables = { SMALL = "yes" }
needs = { download = "1KiB", disk = "1KiB", memory = "1KiB" }
"""


def put_recipe(home: Path, name: str = "small", about: str = ABOUT, lock: str = "click==8.1.7\n") -> Path:
    folder = home / "locks" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "about.toml").write_text(about)
    (folder / "packages.lock").write_text(lock)
    return folder


def put_job(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    """A worker called `job` that may use the shared contract."""
    folder.mkdir(exist_ok=True)
    for shared in ("_contract.py", "_serve_parent.py"):
        (folder / shared).symlink_to(worker.WORKERS / shared)
    head = "import json, os, signal, sys, time\nfrom pathlib import Path\n"
    head += "sys.path.append(str(Path(__file__).resolve().parent))\nfrom _contract import *\n"
    (folder / "job.py").write_text(head + body)
    monkeypatch.setattr(worker, "WORKERS", folder)
    return "job"


@pytest.fixture
def small(mopt_home: Path, own_environments: Path) -> str:
    put_recipe(mopt_home)
    return "small"


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python without any package."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


def silent(_text: str, _share: float | None) -> None:
    pass


# recipes


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_that_ships_is_whole(name: str) -> None:
    found = environments.load(name)
    assert found.about.title
    assert found.packages
    assert found.needs.disk_bytes >= found.needs.download_bytes > 0
    for package in [*found.about.builds, *(p for i in found.about.indexes.values() for p in i.packages)]:
        assert found.pin_of(package)
    pins = found.pins
    installed = pins | {versions.canonical(a.name): a.version for a in found.about.aliases}
    for need in found.about.essential:
        assert versions.unmet(need, installed) is None


def test_a_hyphen_is_an_underscore_and_a_folder_is_the_registration(mopt_home: Path) -> None:
    put_recipe(mopt_home, "my_own")
    assert "my_own" in environments.names()
    assert environments.load("my-own").name == "my_own"


def test_an_unknown_environment_lists_the_known(mopt_home: Path) -> None:
    with pytest.raises(UsageError, match="no environment `nope`") as caught:
        environments.load("nope")
    assert "onnx" in caught.value.hint[0]


def test_the_users_lock_wins_over_the_one_that_ships(mopt_home: Path) -> None:
    put_recipe(mopt_home, "onnx")
    assert environments.load("onnx").packages == ("click==8.1.7",)


@pytest.mark.parametrize(
    "line",
    ["torch==2.13.0+cpu", "torch", "-e .", "--index-url=http://evil", "six @ https://x/y.whl", "a==1;b"],
)
def test_a_lock_holds_pins_and_nothing_else(mopt_home: Path, line: str) -> None:
    put_recipe(mopt_home, lock=f"# comment\n{line}\n")
    with pytest.raises(UsageError, match="is not a pin"):
        environments.load("small")


def test_the_digest_is_of_what_gets_installed(mopt_home: Path) -> None:
    put_recipe(mopt_home, lock="a==1\nb==2\n")
    before = environments.load("small").digest
    put_recipe(mopt_home, lock="# other order\nb==2\na==1\n")
    assert environments.load("small").digest == before
    put_recipe(mopt_home, lock="a==1\nb==3\n")
    assert environments.load("small").digest != before


@pytest.mark.parametrize("about", ["title = 3", "title = ", "title = 'x'"])
def test_a_broken_description_is_an_error_not_a_bug(mopt_home: Path, about: str) -> None:
    put_recipe(mopt_home, about=about)
    with pytest.raises(UsageError, match="does not describe an environment"):
        environments.load("small")


# versions


@pytest.mark.parametrize(
    ("requirement", "why"),
    [
        ("torch", None),
        ("Torch >=2.13,<3", None),
        ("torch ==2.13", None),
        ("torch >=2.13.1", "torch is 2.13.0+cpu, not >=2.13.1"),
        ("torch <2.13", "torch is 2.13.0+cpu, not <2.13"),
        ("torch !=2.13.0", "torch is 2.13.0+cpu, not !=2.13.0"),
        ("torch >2.9, <=2.13", None),
        ("onnxruntime | onnxruntime-gpu >=1.31", None),
        ("tensorrt | tensorrt_rtx", "tensorrt or tensorrt-rtx is missing"),
    ],
)
def test_requirements(requirement: str, why: str | None) -> None:
    assert versions.unmet(requirement, {"torch": "2.13.0+cpu", "onnxruntime-gpu": "1.31.1"}) == why


@pytest.mark.parametrize("text", ["torch ~=2", "torch >=x", ">=2", "torch >=2 <3"])
def test_a_requirement_that_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is not a"):
        versions.unmet(text, {"torch": "2.13.0"})


# the choice of interpreter


def test_the_current_one_is_used_when_its_packages_fit(small: str) -> None:
    chosen = environments.interpreter(small)
    assert (chosen.path, chosen.origin) == (Path(sys.executable), "current")


def test_a_named_one_must_fit(small: str, bare_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environments.interpreter(small, python=Path(sys.executable)).origin == "named"
    with pytest.raises(HostError, match="does not fit the environment `small`") as caught:
        environments.interpreter(small, python=bare_python)
    assert caught.value.cause == ("click is missing",)
    monkeypatch.setenv("MOPT_PYTHON_SMALL", str(bare_python.parents[1]))
    with pytest.raises(HostError, match="does not fit"):
        environments.interpreter(small)
    monkeypatch.setenv("MOPT_PYTHON_SMALL", sys.executable)
    assert environments.interpreter(small).origin == "named"


def test_no_interpreter_is_an_error_that_says_how_to_get_one(mopt_home: Path, own_environments: Path) -> None:
    put_recipe(mopt_home, "very_small", ABOUT.replace("click >=8", "mopt-no-such-package"))
    with pytest.raises(HostError) as caught:
        environments.interpreter("very_small")
    assert "mopt env create very-small" in caught.value.hint[0]
    assert "MOPT_PYTHON_VERY_SMALL" in caught.value.hint[1]
    assert caught.value.exit_code == 3


def test_something_else_than_python_is_refused(small: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Python at"):
        environments.interpreter(small, python=tmp_path / "nowhere")
    with pytest.raises(HostError, match="not a Python that mopt can use"):
        environments.interpreter(small, python=Path("/bin/true"))


def test_an_unfinished_environment_is_not_used(
    mopt_home: Path, own_environments: Path, bare_python: Path
) -> None:
    put_recipe(mopt_home, about=ABOUT.replace("click >=8", "mopt-no-such-package"))
    own_environments.mkdir()
    bare_python.parents[1].rename(own_environments / "small")
    with pytest.raises(HostError, match="is not there"):
        environments.interpreter("small")
    (own_environments / "small" / pythons.MARKER).write_text('{"name": "sm')
    with pytest.raises(HostError, match="is not there"):
        environments.interpreter("small")


# jobs


def test_a_job_gets_its_request_and_its_result_comes_back(small: str, tmp_path: Path) -> None:
    said: list[tuple[str, float | None]] = []
    result = environments.run_worker(
        small,
        "selftest",
        {"imports": ["json", "click"], "echo": {"path": tmp_path, "text": "grün \ud800 \n"}},
        lambda text, share: said.append((text, share)),
    )
    assert result["echo"] == {"path": str(tmp_path), "text": "grün \ud800 \n"}
    assert set(result["imports"]) == {"json", "click"}
    assert said == [("importing json", 0.0), ("importing click", 0.5)]


def test_a_job_does_not_see_the_folder_it_is_started_in(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise RuntimeError('a file of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert environments.run_worker(small, "selftest", {"imports": ["click"]}, silent)["imports"]


def test_secrets_stay_here_and_hubs_are_offline(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "PIP_INDEX_URL",
        "https_proxy",
    ):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    job = put_job(tmp_path / "w", monkeypatch, "main(lambda _: dict(os.environ))")
    seen = environments.run_worker(small, job, {}, silent, env={"EXTRA": "1"})
    assert "hidden" not in seen.values()
    assert seen["HF_HUB_OFFLINE"] == seen["TRANSFORMERS_OFFLINE"] == "1"
    assert seen["TOKENIZERS_PARALLELISM"] == "false"
    assert (seen["HF_ENDPOINT"], seen["OMP_NUM_THREADS"]) == ("https://mirror.example", "2")
    assert (seen["SMALL"], seen["EXTRA"]) == ("yes", "1")
    assert seen["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    online = environments.run_worker(small, job, {}, silent, hub=True)
    assert online["HF_TOKEN"] == online["https_proxy"] == "hidden"
    assert "OPENAI_API_KEY" not in online


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("usage", UsageError),
        ("host-not-ready", HostError),
        ("out-of-memory", HostError),
        ("disk-full", HostError),
        ("no-feasible-plan", NoFeasiblePlan),
        ("tool-failed", ToolError),
        ("export-failed", ToolError),
        ("broken-checkpoint", UsageError),
        ("no-tokenizer", UsageError),
        ("calibration-data", UsageError),
    ],
)
def test_a_written_error_is_raised_as_its_kind(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, kind: type[MoptError]
) -> None:
    body = f"main(lambda _: fail({reference!r}, 'what', ['why'], ['next']))"
    job = put_job(tmp_path / "w", monkeypatch, body)
    with pytest.raises(kind, match="what") as caught:
        environments.run_worker(small, job, {}, silent)
    error = caught.value
    assert (error.reference, error.cause, error.hint) == (reference, ("why",), ("next",))


@pytest.mark.parametrize(
    ("body", "message", "cause"),
    [
        (
            "print('last words', file=sys.stderr); os.kill(os.getpid(), signal.SIGKILL)",
            "killed by SIGKILL",
            "last words",
        ),
        ("print('out'); sys.exit(7)", "exit code 7", "out"),
        ("raise RuntimeError('sudden')", "exit code 1", "RuntimeError: sudden"),
        ("print('nothing written')", "ended without an answer", "nothing written"),
        ("Path(sys.argv[2]).write_text('[1]'); print('a list')", "without an answer", "a list"),
        ("Path(sys.argv[2]).write_text('{\"half'); print('half')", "without an answer", "half"),
        ("Path(sys.argv[2]).write_text('{}'); print('bad end'); sys.exit(3)", "exit code 3", "bad end"),
    ],
)
def test_a_job_without_an_answer_shows_its_last_words(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str, cause: str
) -> None:
    job = put_job(tmp_path / "w", monkeypatch, body)
    log = tmp_path / "log"
    log.write_text("from an earlier job\n")
    with pytest.raises(ToolError, match=message) as caught:
        environments.run_worker(small, job, {}, silent, log=log)
    assert caught.value.cause[-1] == cause
    assert "from an earlier job" not in caught.value.cause
    assert f"the whole log: {log}" in caught.value.hint
    assert ("memory" in str(caught.value.hint)) == ("SIGKILL" in message)


def test_progress_survives_noise(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        '{"progress": "a", "share": 0.5}', '{"progress": "b", "share": 7}', '{"progress": "c", "share": "x"}',
        '{"progress": 3}', "{", '{"other": 1}', "\udcff", '{"progress": "d", "share": null}', "x" * 200_000,
    ]  # fmt: skip
    body = f"for line in {lines!r}: sys.stderr.buffer.write(line.encode(errors='surrogateescape') + b'\\n')\n"
    job = put_job(tmp_path / "w", monkeypatch, body + "sys.stderr.flush(); main(lambda _: {'done': True})")
    said: list[tuple[str, float | None]] = []
    log = tmp_path / "log"
    result = environments.run_worker(small, job, {}, lambda t, s: said.append((t, s)), log=log)
    assert result["done"] is True
    assert said == [("a", 0.5), ("b", None), ("c", None), ("d", None)]
    assert '{"progress": 3}' in log.read_text(errors="replace")


LEAVES = """
import tempfile
def job(request):
    folder = tempfile.mkdtemp(prefix="ort.quant.")
    with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
        pass
    Path(request["told"]).write_text(folder + "\\n" + file.name)
    if request["end"] == "waits":
        progress("left")
        time.sleep(600)
    if request["end"] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {}
main(job)
"""


@pytest.mark.parametrize("end", ["well", "dies", "waits"])
def test_what_libraries_of_a_job_leave_in_the_temporary_folder_goes(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """On its good end, when it is killed, and when it is interrupted."""
    job, told = put_job(tmp_path / "w", monkeypatch, LEAVES), tmp_path / "told"

    def interrupt(_text: str, _share: float | None) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    ends = {
        "well": nullcontext(),
        "dies": pytest.raises(ToolError),
        "waits": pytest.raises(KeyboardInterrupt),
    }
    with ends[end]:
        environments.run_worker(small, job, {"told": str(told), "end": end}, interrupt)
    left = [Path(line) for line in told.read_text().splitlines()]
    assert len(left) == 2 and not any(path.exists() or path.parent.exists() for path in left)


def test_an_interrupt_ends_the_job_and_its_children(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "progress(f'{os.getpid()} {child.pid}'); time.sleep(600)"
    )
    job = put_job(tmp_path / "w", monkeypatch, body)
    seen: list[int] = []

    def interrupt(text: str, _share: float | None) -> None:
        seen.extend(int(word) for word in text.split())
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        environments.run_worker(small, job, {}, interrupt)
    import psutil

    assert len(seen) == 2
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in seen)


def test_a_job_has_a_time_limit(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = put_job(tmp_path / "w", monkeypatch, "time.sleep(600)")
    with pytest.raises(ToolError, match="did not end within"):
        environments.run_worker(small, job, {}, silent, timeout_s=0.5)


@pytest.mark.parametrize("job", ["nope", "../cli/app", "_contract", "selftest.py"])
def test_only_jobs_that_ship_are_run(small: str, job: str) -> None:
    with pytest.raises(UsageError, match="no worker"):
        environments.run_worker(small, job, {}, silent)


def test_a_server_is_started_and_stopped(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def job(request):\n    print(request['hello'], flush=True); time.sleep(600)\nmain(job)"
    job = put_job(tmp_path / "w", monkeypatch, body)
    running = environments.start_worker(small, job, {"hello": "there"}, log=tmp_path / "log" / "server.log")
    while not running.log_tail(1):
        assert running.poll() is None
    assert running.log_tail(1) == ("there",)
    assert running.stop(grace_s=10) is not None


def test_a_server_has_a_temporary_folder_of_its_own_unless_the_plan_names_one(
    small: str, tmp_path: Path, mopt_home: Path
) -> None:
    tool = tmp_path / "a-server"
    tool.write_text('#!/bin/sh\necho "$TMPDIR $TORCHINDUCTOR_CACHE_DIR"\n')
    tool.chmod(0o755)
    said: list[str] = []
    for number, env in enumerate(({}, {"TMPDIR": "/mine"})):
        running = environments.start_program(str(tool), (), log=tmp_path / f"log-{number}", env=env)
        running.wait(30)
        said += running.log_tail(1)
    own, _, compiled = said[0].partition(" ")
    assert unfinished.is_temporary(Path(own))
    assert not Path(own).exists()
    assert compiled == str(mopt_home / "compiled")
    assert (mopt_home / "compiled").stat().st_mode & 0o777 == 0o700
    assert said[1].startswith("/mine")


def test_compiled_kernels_are_kept_where_nobody_else_writes(
    small: str, tmp_path: Path, mopt_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = put_job(tmp_path / "w", monkeypatch, "main(lambda _: dict(os.environ))")
    name = "TORCHINDUCTOR_CACHE_DIR"
    monkeypatch.delenv(name, raising=False)
    assert environments.run_worker(small, job, {}, silent)[name] == str(mopt_home / "compiled")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)  # another user's: a home that a group shares
    assert name not in environments.run_worker(small, job, {}, silent)
    monkeypatch.setenv(name, "/mine")
    assert environments.run_worker(small, job, {}, silent)[name] == "/mine"


def test_why_a_server_ended(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = put_job(tmp_path / "w", monkeypatch, "main(lambda _: fail('port-in-use', 'port 1 is taken'))")
    running = environments.start_worker(small, job, {}, log=tmp_path / "server.log")
    running.wait(60)
    error = environments.why_ended(running, "the server")
    assert (error.message, error.reference) == ("port 1 is taken", "port-in-use")
    running = environments.start_module(small, ("mopt_no_such_module",), log=tmp_path / "module.log")
    running.wait(60)
    error = environments.why_ended(running, "the server")
    assert "exit code 1" in error.message
    assert "No module named mopt_no_such_module" in error.cause[-1]


def test_a_module_is_run_by_the_interpreter(small: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for arguments in (("-m", "json.tool", "--help"), ["json.tool", "--help"]):
        running = environments.start_module(small, arguments, log=log)
        assert running.wait(60) == 0
    assert log.read_text().count("usage") == 2


def test_a_request_cannot_hold_what_json_cannot(small: str) -> None:
    with pytest.raises(TypeError, match="cannot hold a set"):
        environments.run_worker(small, "selftest", {"echo": {1}}, silent)


def test_the_python_version_of_another_interpreter_is_read(bare_python: Path) -> None:
    found = environments.installed(bare_python)
    assert found.python.split(".")[:2] == [str(n) for n in sys.version_info[:2]]
    assert found.packages == {}
    assert json.loads(processes.run([bare_python, "-c", "print(1)"]).stdout) == 1


def test_an_engine_without_a_lock_runs_in_the_python_that_a_user_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError, match="which Python has `sglang` is not known") as caught:
        environments.start_module("sglang", ("sglang",), log=tmp_path / "log")
    assert any("--container" in hint for hint in caught.value.hint)
    python = environments.interpreter("sglang", python=Path(sys.executable))
    assert (python.path, python.origin) == (Path(sys.executable), "named")
    monkeypatch.setenv("MOPT_PYTHON_SGLANG", "/nowhere/python")
    with pytest.raises(UsageError, match="there is no Python at"):
        environments.interpreter("sglang")


def test_a_program_is_started_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "a-server"
    tool.write_text("#!/bin/sh\necho got $1 $EXTRA $MY_API_KEY.\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MY_API_KEY", "secret")
    running = environments.start_program("a-server", ("--port",), log=tmp_path / "log", env={"EXTRA": "x"})
    running.wait(20.0)
    assert running.log_tail() == ("got --port x .",)
    with pytest.raises(HostError, match="there is no program `no-such-server`"):
        environments.start_program("no-such-server", (), log=tmp_path / "log")

"""Starting, watching and stopping, with a program that plays the server."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_optimizer.core import Artifact, HostError, Launch, Plan, Setting, Slo, ToolError, Workload
from model_optimizer.serve import ServerHandle, start
from model_optimizer.system import processes
from model_optimizer.system.processes import Running

STUB = Path(__file__).with_name("stub_server.py")


def artifact(task: str = "generate") -> Artifact:
    return Artifact(path="/models/x", format="onnx", scheme="fp32", task=task, bytes=1, digest="sha256:0")


def plan(task: str = "generate", *settings: Setting) -> Plan:
    return Plan(
        model="a-model",
        checkpoint="elsewhere",
        workload=Workload(task=task),  # type: ignore[arg-type]
        slo=Slo(),
        engine="stub",
        environment="none",
        scheme="fp32",
        format="onnx",
        settings=settings,
    )


class Stub:
    """An engine whose server behaves as told; keeps the plans that it was asked to launch."""

    STAGES = (("very large", "loading very much"),)

    def __init__(self, *behaviours: str) -> None:
        self.behaviours = list(behaviours)
        self.launched: list[tuple[Plan, int]] = []
        self.launches: list[Launch] = []

    def launch(self, plan: Plan, port: int) -> Launch:
        self.launched.append((plan, port))
        behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
        return Launch(environment="none", arguments=(str(port), behaviour), served_name="a-model")

    def start_process(self, launch: Launch, log: Path) -> Running:
        self.launches.append(launch)
        command = [sys.executable, str(STUB), *launch.arguments]
        return processes.start(command, log=log, env={**os.environ, **launch.env})


def serve(stub: Stub, tmp_path: Path, work: Plan | None = None, **options: object) -> ServerHandle:
    work = work or plan()
    return start(
        work,
        artifact(work.workload.task),
        engine=stub,  # type: ignore[arg-type]
        log=tmp_path / "serve.log",
        progress=lambda *_: None,
        start_process=stub.start_process,
        **options,  # type: ignore[arg-type]
    )


def test_a_server_is_ready_answers_and_leaves_nothing(tmp_path: Path) -> None:
    stub = Stub("good")
    with serve(stub, tmp_path) as server:
        assert server.alive()
        assert server.url == f"http://127.0.0.1:{stub.launched[0][1]}"
        assert server.served_name == "a-model"
        held, how = server.memory_bytes()
        assert held is not None
        assert held > 1_000_000
        assert "size of all its processes" in how
        pid = server.pid
    assert not server.alive()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
    server.stop()  # once more does no harm


def test_the_artefact_is_what_is_launched(tmp_path: Path) -> None:
    stub = Stub("good")
    with serve(stub, tmp_path):
        launched, _port = stub.launched[0]
    assert (launched.checkpoint, launched.format) == ("/models/x", "onnx")


def test_progress_says_what_the_log_says(tmp_path: Path) -> None:
    said: list[str] = []
    stub = Stub("hangs")
    with pytest.raises(ToolError, match=r"not ready after 1 s") as caught:
        start(
            plan(),
            artifact(),
            engine=stub,  # type: ignore[arg-type]
            log=tmp_path / "serve.log",
            progress=lambda text, _share: said.append(text),
            start_process=stub.start_process,
            limit_s=1.0,
        )
    assert caught.value.reference == "start-timed-out"
    assert any("loading a very large model" in text for text in said)
    assert "serve.log" in caught.value.hint[0]


def test_a_server_that_hangs_is_stopped(tmp_path: Path) -> None:
    stub = Stub("never-ready")
    with pytest.raises(ToolError, match="not ready"):
        serve(stub, tmp_path, limit_s=0.5)
    _plan, port = stub.launched[0]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_server_that_dies_says_why(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="ended without an answer") as caught:
        serve(Stub("dies"), tmp_path)
    assert caught.value.cause == ("ValueError: the weights are of another shape",)


def test_a_server_that_cannot_compute_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="gave no answer to a first request") as caught:
        serve(Stub("broken"), tmp_path)
    assert caught.value.cause[0].startswith("/v1/completions gave status 500")


@pytest.mark.parametrize(
    ("behaviour", "task", "says"),
    [
        ("empty", "generate", "an answer without a token"),
        ("bangs", "generate", "nothing but exclamation marks"),
        ("nan", "embed", "no answer of the agreed form"),
        ("zeros", "embed", "a vector of zeros"),
    ],
)
def test_a_server_that_answers_nonsense_is_not_ready(
    behaviour: str, task: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match="its first answer is nonsense") as caught:
        serve(Stub(behaviour), tmp_path, plan(task))
    assert says in caught.value.cause[0]


def test_an_embedding_server_is_asked_for_a_vector(tmp_path: Path) -> None:
    with serve(Stub("good"), tmp_path, plan("embed")) as server:
        assert server.alive()


def test_a_named_port_in_use_is_the_hosts_fault(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stub = Stub("good")
        with pytest.raises(HostError, match=f"port {port} of 127.0.0.1 is in use") as caught:
            serve(stub, tmp_path, port=port)
    assert caught.value.reference == "port-in-use"
    assert not stub.launched


def test_a_named_port_is_used(tmp_path: Path) -> None:
    port = processes.free_port()
    with serve(Stub("good"), tmp_path, port=port) as server:
        assert server.url.endswith(f":{port}")


def test_another_port_is_tried_when_somebody_was_quicker(tmp_path: Path) -> None:
    stub = Stub("good", "good")
    real = stub.start_process

    def lose_the_first(launch: Launch, log: Path) -> Running:
        if len(stub.launched) == 1:
            command = [sys.executable, "-c", "raise OSError('[Errno 98] Address already in use')"]
            return processes.start(command, log=log)
        return real(launch, log)

    stub.start_process = lose_the_first  # type: ignore[method-assign]
    with serve(stub, tmp_path) as server:
        assert server.alive()
    assert len(stub.launched) == 2


def test_the_key_reaches_the_server_and_no_plan(tmp_path: Path) -> None:
    stub = Stub("key")
    with serve(stub, tmp_path, key="secret-key") as server:
        assert server.alive()
    launched, _port = stub.launched[0]
    assert "secret-key" not in str(launched)
    env = stub.launches[0].env
    assert (env["MOPT_API_KEY"], env["VLLM_API_KEY"]) == ("secret-key", "secret-key")
    assert "secret-key" not in (tmp_path / "serve.log").read_text()


def test_a_server_is_told_whose_it_is_unless_it_outlives(tmp_path: Path) -> None:
    stub = Stub("good")
    with serve(stub, tmp_path):
        pass
    with serve(stub, tmp_path, outlive=True):
        pass
    assert [launch.env.get("MOPT_PARENT_PID") for launch in stub.launches] == [str(os.getpid()), None]


def test_an_address_for_everyone_is_reached_through_this_machine(tmp_path: Path) -> None:
    wide = Setting(name="host", value="0.0.0.0", because="asked", source="user")
    with serve(Stub("good"), tmp_path, plan("generate", wide)) as server:
        assert server.url.startswith("http://127.0.0.1:")


def test_ctrl_c_while_waiting_leaves_nothing(tmp_path: Path) -> None:
    stub = Stub("never-ready")
    running: list[Running] = []

    def and_remember(launch: Launch, log: Path) -> Running:
        running.append(Stub.start_process(stub, launch, log))
        return running[0]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(
            plan(),
            artifact(),
            engine=stub,  # type: ignore[arg-type]
            log=tmp_path / "serve.log",
            progress=interrupt,
            start_process=and_remember,
        )
    assert running[0].poll() is not None


def test_a_polite_end_of_this_process_stops_the_server(tmp_path: Path) -> None:
    """SIGTERM to the program that serves, as a service manager sends it."""
    script = tmp_path / "serving.py"
    script.write_text(
        f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(STUB.parents[2])!r})
from tests.serve.test_run import Stub, serve
with serve(Stub("good"), Path({str(tmp_path)!r})) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""
    )
    program = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert program.stdout
    pid = int(program.stdout.readline())
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=30)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_is_deaf_to_ctrl_c_is_stopped_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_optimizer.serve.handle.GRACE_S", 1.0)
    begun = time.monotonic()
    with serve(Stub("deaf"), tmp_path) as server:
        assert server.alive()
    assert not server.alive()
    assert time.monotonic() - begun < 30


def test_an_engine_without_stages_is_loading(tmp_path: Path) -> None:
    stub = Stub("good")
    bare = SimpleNamespace(launch=stub.launch)
    log = tmp_path / "l.log"
    with start(plan(), artifact(), engine=bare, log=log, progress=lambda *_: None, start_process=stub.start_process) as s:  # type: ignore[arg-type]  # fmt: skip
        assert s.alive()


def test_plans_are_not_changed(tmp_path: Path) -> None:
    mine = plan()
    before = dataclasses.replace(mine)
    with serve(Stub("good"), tmp_path, mine):
        assert mine == before


def test_a_full_disk_is_why_a_server_died_that_could_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_optimizer.system.files.free_bytes", lambda _path: 4096)
    with pytest.raises(HostError, match="ended without an answer") as caught:
        serve(Stub("dies"), tmp_path)
    assert caught.value.reference == "disk-full"
    assert "serve.log is full: 4 KiB are free" in caught.value.cause[0]

"""Containers, with a program that plays docker: it records what it is asked and behaves."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import (
    Artifact,
    HostError,
    Plan,
    Setting,
    Slo,
    ToolError,
    UsageError,
    Workload,
    plugins,
)
from model_optimizer.serve import ServerHandle, contained, start
from model_optimizer.system import containers

ENGINES = plugins.load_all("model_optimizer.engines")


def calls(home: Path) -> list[list[str]]:
    return [json.loads(line)["words"] for line in (home / "calls").read_text().splitlines()]


def plan(engine: str = "vllm", *settings: Setting) -> Plan:
    return Plan(
        model="somebody/A Model",
        checkpoint="somebody/a-model",
        workload=Workload(task="generate"),
        slo=Slo(),
        engine=engine,
        engine_version="0.25.1",
        environment="vllm",
        scheme="bf16",
        format="safetensors",
        settings=settings,
    )


def serve(tmp_path: Path, work: Plan | None = None, image: str | None = None, **more: Any) -> ServerHandle:
    work = work or plan()
    folder = tmp_path / "models" / "a-model"
    folder.mkdir(parents=True, exist_ok=True)
    artifact = Artifact(
        path=str(folder), format="safetensors", scheme="bf16", task="generate", bytes=1, digest="sha256:0"
    )
    return start(
        work,
        artifact,
        engine=contained.as_engine(ENGINES[work.engine], "docker", image),
        log=tmp_path / "serve.log",
        progress=lambda *_: None,
        start_process=contained.start,
        **more,
    )


def the_run(home: Path) -> list[str]:
    return next(words for words in calls(home) if words[0] == "run")


def test_it_runs_answers_and_is_removed_by_its_id(docker: Path, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        running = server.running
        assert isinstance(running, containers.Contained)
        assert server.alive()
        assert running.poll() is None
        assert (docker / "containers" / running.container).is_dir()
    assert not list((docker / "containers").iterdir())
    assert [p.name for p in (docker / "removed").iterdir()] == [running.container]
    run = the_run(docker)
    assert run[run.index("--log-driver") + 1] == "local"
    for words in calls(docker):
        if words[0] in ("stop", "rm", "logs", "inspect"):
            assert words[-1] == running.container


@pytest.mark.parametrize("driver", ["podman", "journald", "local", "hangs", ""])
def test_a_log_driver_that_somebody_chose_or_podman_has_is_left_alone(
    docker: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setenv("FAKE_DRIVER", driver)
    if driver == "hangs":
        monkeypatch.setattr(containers, "INFO_S", 0.2)
    made = contained.as_engine(ENGINES["vllm"], "docker", None).launch(plan(), 8000)
    assert "--log-driver" not in made.arguments


def test_the_command_has_gpu_shared_memory_cache_address_and_name(docker: Path, tmp_path: Path) -> None:
    with serve(tmp_path, image="my/vllm:1") as server:
        port = server.url.rpartition(":")[2]
        words = the_run(docker)
    assert "--rm" not in words
    assert "--detach" in words
    assert "--ipc=host" in words
    assert words[words.index("--gpus") + 1] == "device=0"
    assert words[words.index("-p") + 1] == f"127.0.0.1:{port}:{port}"
    assert words[words.index("--name") + 1].startswith(f"mopt-a-model-{os.getpid()}-")
    mounts = [words[n + 1] for n, word in enumerate(words) if word == "-v"]
    folder = tmp_path / "models" / "a-model"
    assert mounts == [
        f"{tmp_path}/mopt/container-cache/vllm:/root/.cache",
        f"{Path.home()}/.cache/huggingface:/root/.cache/huggingface",
        f"{folder}:{folder}:ro",
    ]
    assert words[words.index("my/vllm:1") + 1] == str(folder)


def test_the_plans_image_is_pulled_when_it_is_not_here(docker: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with serve(tmp_path):
            pass
    pulled = [words for words in calls(docker) if words[0] == "pull"]
    assert pulled == [["pull", "vllm/vllm-openai:v0.25.1"]]


def test_an_image_that_does_not_exist_is_one_error(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "no-image")
    with pytest.raises(ToolError, match="cannot be pulled") as caught:
        serve(tmp_path)
    assert "manifest unknown" in caught.value.cause[-1]


def test_a_key_is_in_no_list_of_processes(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "key")
    with serve(tmp_path, key="secret-key"):
        words = the_run(docker)
    assert "secret-key" not in " ".join(words)
    passed = [words[n + 1] for n, word in enumerate(words) if word == "-e"]
    assert "VLLM_API_KEY" in passed
    seen = [json.loads(line)["key"] for line in (docker / "calls").read_text().splitlines()]
    assert "secret-key" in seen


def test_its_log_is_followed_and_says_why_it_died(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "dies")
    with pytest.raises(ToolError, match="exit code 1") as caught:
        serve(tmp_path)
    assert "ValueError: the weights are of another shape" in caught.value.cause
    assert "another shape" in (tmp_path / "serve.log").read_text()
    assert not list((docker / "containers").iterdir())


def test_a_refusal_leaves_nothing(docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "refuses")
    with pytest.raises(ToolError, match="refused to start the container") as caught:
        serve(tmp_path)
    assert "could not select device driver" in caught.value.cause[-1]
    assert not list((docker / "containers").iterdir())


def test_a_port_that_somebody_was_quicker_to_take_is_another_one(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "taken")
    with serve(tmp_path) as server:
        assert server.alive()
    assert len([words for words in calls(docker) if words[0] == "run"]) == 2


def test_a_container_that_was_killed_is_seen(docker: Path, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        running = server.running
        os.kill(int((docker / "containers" / running.container / "pid").read_text()), signal.SIGKILL)  # type: ignore[attr-defined]
        assert running.wait(20.0) == 1


def test_it_is_found_again_by_another_process(docker: Path, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        name = server.running.container  # type: ignore[attr-defined]
        found = containers.attach("docker", name, log=server.log)
        assert found is not None
        found.stop(grace_s=2.0)
        assert not (docker / "containers" / name).exists()
    assert containers.attach("docker", name, log=server.log) is None
    assert containers.attach("docker", "; rm -rf /", log=server.log) is None


def test_an_engine_without_an_image_says_so(docker: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no image of vLLM"):
        serve(tmp_path, dataclasses.replace(plan("vllm_cpu"), engine_version=None))
    assert not (docker / "calls").exists()


def test_podman_takes_gpus_by_other_names(tmp_path: Path) -> None:
    made = contained.as_engine(ENGINES["vllm"], "podman", None).launch(plan(), 8000)
    words = list(made.arguments)
    assert made.program == "podman"
    assert "--gpus" not in words
    assert words[words.index("--device") + 1] == "nvidia.com/gpu=0"


def test_a_snapshot_of_a_hub_is_mounted_with_the_files_it_links_to(docker: Path) -> None:
    snapshot = "/cache/hub/models--a--b/snapshots/123"
    made = contained.as_engine(ENGINES["vllm"], "docker", None).launch(
        dataclasses.replace(plan(), checkpoint=snapshot), 8000
    )
    assert "/cache/hub/models--a--b:/cache/hub/models--a--b:ro" in made.arguments
    assert snapshot in made.arguments


def test_a_machine_without_a_gpu_asks_for_none(docker: Path) -> None:
    asked = dataclasses.replace(plan("llama_cpp"), engine_version=None, checkpoint="/m/a.gguf")
    words = (
        contained.as_engine(ENGINES["llama_cpp"], "docker", None, gpus=False).launch(asked, 8000).arguments
    )
    assert "--gpus" not in words
    assert "device=0" not in words
    assert "ghcr.io/ggml-org/llama.cpp:server" in words


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "llama_cpp"])
def test_the_image_is_found_among_the_options(engine: str, docker: Path) -> None:
    asked = dataclasses.replace(plan(engine), engine_version=None, env={"A": "1"})
    words = list(contained.as_engine(ENGINES[engine], "docker", "some/image:7").launch(asked, 8000).arguments)
    assert contained._image(words) == "some/image:7"  # pyright: ignore[reportPrivateUsage]


def test_without_a_runtime_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="neither docker nor podman"):
        containers.runtime()

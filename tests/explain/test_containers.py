"""Containers: image against driver, GPUs, shared memory, ports, keys."""

import pytest

from .asking import ask, said

DOCKERFILE = """\
FROM vllm/vllm-openai:v0.27.1
ENV HF_TOKEN hf_abcdefghijklmnopqrstuv
RUN apt-get update && \\
    pip install vllm==0.27.1 torch==2.1.0+cu121
CMD ["vllm", "serve", "X", "--num-scheduler-steps", "4"]
"""
COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.27.1
    ports:
      - "8000:8000"
    environment:
      - HF_TOKEN=hf_abcdefghijklmnopqrstuv
    command: --model X --tensor-parallel-size 2
"""


@pytest.mark.parametrize(
    ("line", "level", "about"),
    [
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.33.0 X", "warn", "-p 8000:8000"),
        ("docker run --gpus all -p 0.0.0.0:80:8000 vllm/vllm-openai:v0.33.0 X", "warn", "-p 0.0.0.0:80:8000"),
        ("docker run vllm/vllm-openai:v0.33.0 X", "wrong", "--gpus"),
        ("docker run --gpus 0 vllm/vllm-openai:v0.33.0 X", "wrong", "--gpus 0"),
        ("docker run --gpus 1 vllm/vllm-openai:v0.33.0 X", "warn", "--gpus 1"),
        ("docker run --gpus device=0,1 vllm/vllm-openai:v0.33.0 X", "wrong", "--gpus device=0,1"),
        ("docker run --gpus all vllm/vllm-openai:v0.33.0 X -tp 2", "wrong", "--shm-size"),
        ("docker run --gpus all --ipc=host --shm-size 8g vllm/vllm-openai:v0.33.0 X", "note", "--shm-size"),
        ("docker run --gpus all vllm/vllm-openai X", "warn", "vllm/vllm-openai:latest"),
        ("docker run --gpus all vllm/vllm-openai:v0.26.1 X", "wrong", "vllm/vllm-openai:v0.26.1"),
        ("docker run --gpus all vllm/vllm-cu121:latest X", "wrong", "vllm/vllm-cu121:latest"),
        (
            "docker run --gpus all -e HF_TOKEN=hf_aaaaaaaaaaaaaaaa vllm/vllm-openai:v0.33.0 X",
            "warn",
            "HF_TOKEN",
        ),
        ("docker run --gpus all --privileged vllm/vllm-openai:v0.33.0 X", "warn", "--privileged"),
        ("docker run --gpus all --network host vllm/vllm-openai:v0.33.0 X", "warn", "--network host"),
        ("docker run --gpus all vllm/vllm-openai:v0.33.0 vllm serve X", "wrong", "vllm serve"),
        ("docker run --gpus all vllm/vllm-openai:v0.10.2 X", "wrong", "X"),
        ("podman run --gpus all vllm/vllm-openai:v0.33.0 X", "changed", "--gpus"),
    ],
)
def test_what_is_wrong_with_a_container(line: str, level: str, about: str) -> None:
    assert about in said(ask(line), level)


def test_a_good_container_has_nothing_against_it() -> None:
    good = "docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 -e HF_TOKEN vllm/vllm-openai:v0.33.0 X --port 8000"
    found = ask(good, driver="580.95.05", gpu="h100")
    assert not said(found, "wrong")
    assert not said(found, "warn")
    assert found.today == (good,)


def test_the_image_is_held_against_the_driver() -> None:
    line = "docker run --gpus all vllm/vllm-openai:v0.27.1 X"
    assert "vllm/vllm-openai:v0.27.1" in said(ask(line, driver="535.104.05"), "wrong")
    assert "vllm/vllm-openai:v0.27.1" in said(ask(line, driver="580.95.05"), "fine")
    variant = ask(line.replace("v0.27.1", "v0.27.1-cu129"), driver="535.104.05")
    assert "vllm/vllm-openai:v0.27.1-cu129" in said(variant, "fine")


def test_an_image_without_code_for_the_gpu() -> None:
    found = ask("docker run --gpus all vllm/vllm-openai:v0.27.1 X", gpu="gtx 1070")
    assert "vllm/vllm-openai:v0.27.1" in said(found, "wrong")


def test_a_dockerfile() -> None:
    found = ask(DOCKERFILE, driver="535.104.05")
    wrong = said(found, "wrong")
    assert {"vllm/vllm-openai:v0.27.1", "ENV HF_TOKEN", "torch==2.1.0+cu121", "vllm serve"} <= set(wrong)
    assert "--num-scheduler-steps 4" in said(found, "changed")


def test_a_compose_file() -> None:
    found = ask(COMPOSE)
    assert {"shm_size", "devices"} <= set(said(found, "wrong"))
    assert {"8000:8000", "HF_TOKEN"} <= set(said(found, "warn"))


MANIFEST = """\
apiVersion: v1
kind: Service
metadata:
  name: vllm
spec:
  type: LoadBalancer
---
apiVersion: apps/v1
kind: Deployment
spec:
  containers:
    - image: vllm/vllm-openai:v0.27.1
      args: ["X", "--num-scheduler-steps", "4"]
      resources:
        limits:
          nvidia.com/gpu: 2
"""


def test_a_kubernetes_manifest() -> None:
    found = ask(MANIFEST, driver="535.104.05")
    assert {"/dev/shm", "name: vllm", "vllm/vllm-openai:v0.27.1"} <= set(said(found, "wrong"))
    assert "Service" in said(found, "warn")
    assert "--num-scheduler-steps 4" in said(found, "changed")
    without = ask(MANIFEST.replace("nvidia.com/gpu", "cpu"))
    assert "nvidia.com/gpu" in said(without, "wrong")


def test_variables_of_old_releases_become_options() -> None:
    line = (
        "docker run --gpus all -p 127.0.0.1:1:1 -e VLLM_ATTENTION_BACKEND=FLASHINFER -e VLLM_USE_V1=1 -e A=1 "
    )
    found = ask(f"{line}vllm/vllm-openai:v0.33.0 X")
    assert found.today == (
        "docker run --gpus all -p 127.0.0.1:1:1 -e A=1 vllm/vllm-openai:v0.33.0 X --attention-backend FLASHINFER",
    )
    kept = ask(f"{line}vllm/vllm-openai:v0.10.2 --model X")
    assert "VLLM_ATTENTION_BACKEND=FLASHINFER" in kept.today[0]


def test_keys_are_never_shown() -> None:
    key = "hf_abcdefghijklmnopqrstuv"
    lines = (
        DOCKERFILE,
        COMPOSE,
        f"docker run --gpus all -e HF_TOKEN={key} vllm/vllm-openai:v0.33.0 X",
        f"vllm serve X --api-key {key} --hf-token={key}",
        "vllm serve X --api-key mysecretword",
        "OPENAI_API_KEY=mysecretword vllm serve X --port 1",
        "pip install vllm==0.33.0 --index-url https://me:mysecretword@example.org/simple",
    )
    for line in lines:
        shown = str(ask(line))
        assert key not in shown, line
        assert "mysecretword" not in shown, line

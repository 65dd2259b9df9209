"""What `--for` names: images, packages, Dockerfiles; known or not, and hostile ones."""

from pathlib import Path

import pytest

from model_optimizer.core import Host, UsageError, codec
from model_optimizer.core.target import Need
from model_optimizer.doctor import fitting, read_target
from model_optimizer.doctor.target import of_dockerfile

HOSTS = Path(__file__).parents[1] / "hosts"


def need(text: str) -> Need:
    (found,) = read_target(text).needs
    return found


@pytest.mark.parametrize(
    ("text", "product", "kind", "cuda", "driver", "exact"),
    [
        ("vllm/vllm-openai:v0.27.1", "vllm", "image", "13.0.3", "580", True),
        ("docker.io/vllm/vllm-openai:v0.27.1", "vllm", "image", "13.0.3", "580", True),
        ("localhost:5000/vllm/vllm-openai:v0.27.1", "vllm", "image", "13.0.3", "580", True),
        ("vllm/vllm-openai:v0.33.0-cu129", "vllm", "image", "12.9", "525", True),
        ("vllm/vllm-openai:v0.27.1@sha256:" + "a" * 64, "vllm", "image", "13.0.3", "580", True),
        ("vllm==0.33.0", "vllm", "package", "13.0", "580", True),
        ("vllm[audio]==0.33.0", "vllm", "package", "13.0", "580", True),
        ("vllm==0.33.0+cu129", "vllm", "package", "12.9", "525", True),
        ("vllm==0.8.5", "vllm", "package", "12.4", "525", True),
        ("tensorrt==11.4", "tensorrt", "package", "13", "580", True),
        ("tensorrt-cu12==10.16", "tensorrt", "package", "12.9", "525", True),
        ("tensorrt_rtx==1.5", "tensorrt-rtx", "package", None, None, True),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "tensorrt-llm", "image", "13.1", "580", True),
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", "cuda", "image", "12.4.1", "525", True),
        ("pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime", "torch", "image", "12.8", "525", True),
        ("torch==2.14.0", "torch", "package", "13.0", "580", True),
        ("torch==2.14.0+cu126", "torch", "package", "12.6", "525", True),
        ("lmsysorg/sglang:v0.5.13-cu129", "sglang", "image", "12.9", "525", True),
        ("vllm/vllm-openai:latest", "vllm", "image", "13.0.3", "580", False),
        ("vllm/vllm-openai", "vllm", "image", "13.0.3", "580", False),
        ("vllm", "vllm", "package", "13.0", "580", False),
        ("nvcr.io/nvidia/pytorch:25.05-py3", "nvcr.io/nvidia/pytorch", "image", None, None, False),
    ],
)
def test_what_is_named_is_understood(
    text: str, product: str, kind: str, cuda: str | None, driver: str | None, exact: bool
) -> None:
    found = need(text)
    assert (found.product, found.kind, found.cuda, found.minimum_driver, found.exact) == (
        product, kind, cuda, driver, exact,
    )  # fmt: skip
    assert exact or found.notes


def test_an_unknown_release_is_judged_by_the_nearest_and_says_so() -> None:
    found = need("vllm==0.26.1")
    assert (found.version, found.nearest, found.exact) == ("0.26.1", "0.26.0", False)
    assert found.notes[0] == "0.26.1 is not among the releases that are known; 0.26.0 is taken instead"
    assert "newer than every release" in need("vllm==99.1.0").notes[0]
    too_old = need("vllm==0.1.0")
    assert too_old.nearest is None and too_old.cuda is None and "older than every release" in too_old.notes[0]


def test_an_image_that_people_look_for_in_vain() -> None:
    assert need("vllm/vllm-cu121:latest").notes == ("No image called vllm/vllm-cu121 was found.",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "foo==1.2",
        "vllm==",
        "vllm==latest",
        "a b",
        "vllm==0.33.0; rm -rf /",
        "--help",
        "🦙",
        "x" * 5000,
        "./no-such-file",
        "/",
    ],
)
def test_what_is_none_of_these_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_target(text)
    assert caught.value.hint


DOCKERFILE = """
# syntax=docker/dockerfile:1
ARG VERSION=v0.27.1
ARG TAG="12.4.1-devel-ubuntu22.04"
FROM --platform=linux/amd64 nvidia/cuda:${TAG} AS build
RUN pip install --no-cache-dir \\
      "tensorrt==11.4" numpy==1.26.0 && \\
    python3 -m pip install vllm==0.33.0
# FROM commented/out:1
FROM vllm/vllm-openai:$VERSION
COPY --from=build /x /x
FROM build
FROM scratch
FROM my.registry/private/thing:1.0
"""


def test_a_dockerfile_needs_its_base_images_and_what_pip_installs() -> None:
    found = of_dockerfile(DOCKERFILE, "./Dockerfile")
    assert [n.asked for n in found.needs] == [
        "nvidia/cuda:12.4.1-devel-ubuntu22.04", "tensorrt==11.4", "vllm==0.33.0", "vllm/vllm-openai:v0.27.1",
    ]  # fmt: skip
    assert [n.cuda for n in found.needs] == ["12.4.1", "13", "13.0", "13.0.3"]
    assert found.unknown == ("my.registry/private/thing:1.0",)


def test_a_dockerfile_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile.gpu"
    path.write_text(DOCKERFILE)
    assert len(read_target(str(path)).needs) == 4


@pytest.mark.parametrize(
    "content", [b"", b"RUN x", b"\x00\x01FROM a:1", b"x" * (1 << 21), b"\xff\xfeF\x00R\x00"]
)
def test_what_is_no_dockerfile_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "Dockerfile"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        read_target(str(path))


def test_a_dockerfile_that_is_a_folder_or_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "Dockerfile"):
        with pytest.raises(UsageError) as caught:
            read_target(f"{path}")
        assert "cannot be read" in caught.value.message


def test_hostile_dockerfiles_take_bounded_time() -> None:
    import time

    begun = time.monotonic()
    for line in (
        "FROM " + "a/" * 200_000,
        "FROM a:1\n" + "RUN pip" + " -x" * 200_000 + " install",
        "FROM a:1\nARG A=$A\nFROM " + "${A" * 100_000,
        "FROM a:1\n" + "\\\n" * 300_000,
    ):
        of_dockerfile(line, "x")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("gpu", "compiled", "ptx", "runs"),
    [
        ((8, 9), ((8, 0), (9, 0)), False, True),  # the same major version, a lower minor one
        ((8, 0), ((8, 6),), False, False),  # not downwards
        ((12, 0), ((8, 0), (9, 0)), False, False),
        ((12, 0), ((8, 0), (9, 0)), True, True),  # PTX of the newest is compiled on the way
        ((7, 5), ((8, 0), (9, 0)), True, False),
        ((7, 5), None, False, True),  # not known: nothing is claimed
    ],
)
def test_compiled_code_runs_on_its_major_version(
    gpu: tuple[int, int], compiled: tuple[tuple[int, int], ...] | None, ptx: bool, runs: bool
) -> None:
    assert fitting.has_code(gpu, compiled, ptx=ptx) is runs


def test_which_driver_runs_what() -> None:
    old = codec.load(HOSTS / "driver-535.json", Host)
    assert fitting.driver_runs(old, need("vllm==0.33.0")) is False
    assert fitting.driver_runs(old, need("nvidia/cuda:12.9.0-base")) is True  # within one major version
    assert fitting.driver_runs(Host(), need("vllm==0.33.0")) is None
    windows = codec.load(HOSTS / "wsl2-small-memory.json", Host)
    assert fitting.driver_runs(windows, need("vllm==0.33.0")) is True  # Windows's 581 is not Linux's

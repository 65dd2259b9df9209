"""What `mopt tune` accepts, and its screens of studies that are not finished or have several workloads."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.flow.test_priors import OLD
from tests.tune.test_finals import SLOWED, gained, rounds, runs

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


def test_pairs_of_rounds_are_on_the_screen_beside_welch() -> None:
    settings = {"seqs": "64", "tokens": ""}

    def text(count: int) -> str:
        a, b = rounds(SLOWED[:count]), rounds(gained(1.1, SLOWED[:count]))
        duel = finals.duel(OLD.default, settings, a, b, resident=True)
        return study_text(replace(OLD, finals=(duel,), final_runs=tuple(b), because="x"), Path("s"))

    assert "undecided (3 and 3 runs); 3 pairs of one round each say [1.0" in text(3)
    assert "better (4 pairs of one round each; Welch [0." in text(4) and "undecided)" in text(4)


def test_cautions_are_on_the_screen() -> None:
    assert "caution: a load is short" in study_text(replace(OLD, cautions=("a load is short",)), Path("s"))


TINY = str(Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3")


@pytest.mark.parametrize(
    "words", [["--knob", "max_num_seq=1,2"], ["--set", "max_num_seq=4"], ["--only", "nope"]]
)
def test_a_setting_that_the_engine_is_never_handed_is_refused_and_leaves_no_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be left out of the command line, and every trial would measure the same."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["tune", TINY, "--engine", "vllm_cpu", "--concurrency", "2", *words])
    assert isinstance(done.exception, UsageError)
    assert "no setting" in done.exception.message
    assert not list(tmp_path.iterdir())


def test_names_of_settings_are_taken_as_people_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "--engine",
        "vllm_cpu",
        "--concurrency",
        "2",
        "--only",
        "max-num-seqs",
        "--knob",
        "max-num-seqs=3,6",
    ]
    done = CliRunner().invoke(app, ["tune", TINY, *words, "--dry-run"])
    assert done.exit_code == 0 and "max_num_seqs" in done.stdout and "max-num-seqs" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("model_optimizer.flow.study.run", ended)
    words = ["--engine", "vllm_cpu", "--concurrency", "2", "--out", str(tmp_path / "s")]
    done = CliRunner().invoke(app, ["tune", TINY, *words])
    assert done.exit_code != 0
    assert f"mopt tune --resume {tmp_path / 's'}" in done.stderr
    assert (tmp_path / "s" / "request.json").is_file()

"""The report of a study: the recorded one of an H200, and one with text that means harm."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from model_optimizer.core import UsageError, codec
from model_optimizer.core.study import Study
from model_optimizer.flow.results import page
from model_optimizer.report import study_html, study_markdown
from model_optimizer.tune.finals import with_rounds

KEPT = Path(__file__).parents[2] / "evidence" / "tune-h200" / "study-2026-11-30-second.json.gz"


@pytest.fixture(scope="module")
def study() -> Study:
    found = codec.loads(gzip.decompress(KEPT.read_bytes()), Study)
    return replace(found, final_runs=with_rounds(found.final_runs), paused=None, because="1.57 times")


def test_the_answer_the_proof_and_the_trials_are_there(study: Study) -> None:
    text = study_markdown(study)
    assert "**Better: max-num-batched-tokens=4096, quantization=fp8, 1.57 times**" in text
    assert "| 1.567 | 1.116 to 2.199 | - | better |" in text
    assert "the same, mixed alone" in text and "| undecided |" in text
    assert "148,144" in text and "not verified for quality" in text
    assert "| side by side, round 4 | 32.536 | - | 22.969 | - |" in text


def test_the_page_says_the_same_and_obeys_nothing_from_outside(study: Study) -> None:
    harmful = replace(study, notes=("<script>x</script>",), cautions=("a | b",))
    html = study_html(harmful)
    assert "1.116 to 2.199" in html and "<script>" not in html
    assert "a \\| b" in study_markdown(harmful)


def test_a_study_that_is_not_finished_gives_no_verdict(study: Study) -> None:
    assert "**Not finished: no time**" in study_markdown(replace(study, paused="no time"))


@pytest.mark.parametrize("named", ["", "study.json"])
def test_the_folder_and_the_file_of_a_study_are_reported(study: Study, named: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(codec.dumps(study))
    where = str(tmp_path / named)
    assert page(where, "md").startswith("# Settings of") and page(where, "html").startswith("<!doctype")
    assert codec.loads(page(where, "json"), Study) == study


def test_a_study_that_was_cut_off_is_said(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"schema": "study/1", "plan"')
    with pytest.raises(UsageError):
        page(str(tmp_path), "md")

"""Earlier studies lead a new one: the same model, machine and engine, in the words of the new space."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.flow.stand_in import PLAN, plan

from model_optimizer.core import codec
from model_optimizer.core.study import Knob, Score, Study, Trial
from model_optimizer.flow.priors import earlier, of_study
from model_optimizer.tune import finals


def knob(name: str, values: str, default: str = "") -> Knob:
    return Knob(name=name, values=tuple(values.split(",")), default=default, because="", source="test")


def trial(number: int, value: float | None, **settings: str) -> Trial:
    found = Score(value=value, signal=0.0, goodput_per_s=value, level="8") if value is not None else None
    state = "measured" if value is not None else "failed"
    return Trial(number=number, state=state, settings=settings, proposed_by="", score=found)


VLLM = replace(PLAN, engine="vllm", engine_version="0.25.1")
KNOBS = (knob("seqs", ",32,64"), knob("tokens", ",2048,4096"))
FRESH = Study(
    plan=VLLM, objective="goodput", levels=(8.0,), knobs=KNOBS, combinations=9, host_name="H200", trials=()
)
OLD = replace(
    FRESH,
    plan=replace(VLLM, engine_version="0.25.0"),
    trials=(
        trial(0, 10.0, seqs="", tokens=""),
        trial(1, 14.0, seqs="64", tokens="4096"),
        trial(2, None, seqs="32", tokens="4096"),
        trial(3, 0.0, seqs="32", tokens="2048"),
    ),
)


def ratios(old: Study, fresh: Study = FRESH) -> dict[tuple[str, ...], float]:
    return {tuple(p.settings.values()): p.ratio for p in of_study(old, fresh, name="old")}


def test_measured_settings_are_ratios_to_their_default() -> None:
    assert ratios(OLD) == {("", ""): 1.0, ("64", "4096"): 1.4}


def test_a_second_look_is_worth_more_than_a_trial() -> None:
    from tests.tune.test_finals import runs

    proven = finals.duel(
        {"seqs": "", "tokens": ""}, {"seqs": "64", "tokens": "4096"}, runs([10, 10.1]), runs([12, 12.1])
    )
    assert ratios(replace(OLD, finals=(proven,)))[("64", "4096")] == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize(
    "other",
    [
        replace(OLD, host_name="H100"),
        replace(OLD, objective="energy"),
        replace(OLD, plan=replace(VLLM, model="another")),
        replace(OLD, plan=replace(VLLM, engine="sglang")),
        replace(OLD, plan=replace(VLLM, engine_version="0.26.0")),
        replace(OLD, trials=()),
        replace(OLD, trials=OLD.trials[1:]),
        replace(OLD, trials=(trial(0, 0.0, seqs="", tokens=""), *OLD.trials[1:])),
    ],
)
def test_a_study_of_something_else_tells_nothing(other: Study) -> None:
    assert ratios(other) == {}


def test_knobs_that_only_one_of_them_has_are_translated_or_left_out() -> None:
    wider = replace(FRESH, knobs=(*KNOBS, knob("stream", ",4")))
    assert ratios(OLD, wider) == {("", "", ""): 1.0, ("64", "4096", ""): 1.4}
    narrower = replace(FRESH, knobs=KNOBS[:1])
    assert ratios(OLD, narrower) == {("",): 1.0}  # it turned `tokens`, which cannot be said here
    assert ratios(OLD, replace(FRESH, knobs=(knob("seqs", ",32"), KNOBS[1]))) == {("", ""): 1.0}


def test_another_default_is_another_yardstick() -> None:
    assert ratios(replace(OLD, plan=plan(x="1")), FRESH) == {}
    moved = replace(FRESH, knobs=(knob("seqs", ",32,64", default="64"), KNOBS[1]))
    assert ratios(OLD, moved) == {}


def test_the_studies_of_a_folder_are_read_and_broken_ones_passed_over(tmp_path: Path) -> None:
    for name, text in (("a", codec.dumps(OLD)), ("b", "{"), ("mine", codec.dumps(OLD))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.json").write_text(text)
    found = earlier(tmp_path, FRESH, own=tmp_path / "mine")
    assert {prior.study for prior in found} == {"a"} and len(found) == 2
    assert earlier(tmp_path / "none", FRESH, own=tmp_path) == ()


def test_the_screen_says_which_studies_are_believed() -> None:
    from model_optimizer.flow.study import _believed

    said = _believed(of_study(OLD, FRESH, name="20261130-q8"))
    assert "20261130-q8 (2)" in said[0]
    assert _believed(()) == ()

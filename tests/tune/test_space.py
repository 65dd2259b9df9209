"""Which knobs matter for a plan and a load, and what a plan is with some of them turned."""

from dataclasses import replace

import pytest

from model_optimizer.core import Lengths, Plan, Setting, Slo, UsageError, Workload
from model_optimizer.facts import tune as facts
from model_optimizer.facts.vllm import flags
from model_optimizer.system import models
from model_optimizer.tune import space

MODEL = models.read("Qwen/Qwen3-8B", offline=True)
PLAN = Plan(
    model="Qwen/Qwen3-8B",
    checkpoint="Qwen/Qwen3-8B",
    gpus=1,
    workload=Workload(concurrency=64, prompt_tokens=Lengths.fixed(512), output_tokens=Lengths.fixed(128)),
    slo=Slo(),
    engine="vllm",
    engine_version="0.25.1",
    scheme="bf16",
    format="safetensors",
    settings=(
        Setting(name="max-num-seqs", value="256", because="", source="table"),
        Setting(name="max-num-batched-tokens", value="8192", because="", source="table"),
    ),
)


def found(plan: Plan = PLAN, clients: float = 64, **given: object):
    knobs = space.knobs(
        facts.knobs("vllm"),
        plan,
        MODEL,
        clients=clients,
        **{"wanted": {}, **given},  # type: ignore[arg-type]
    )
    return {knob.name: knob for knob in knobs}


def test_the_default_is_what_the_plan_has() -> None:
    assert found()["max-num-batched-tokens"].default == "8192"


def test_values_beyond_which_nothing_changes_are_left_out() -> None:
    assert found(clients=64)["max-num-seqs"].values == ("32", "64", "256")
    assert found(clients=1000)["max-num-seqs"].values == ("32", "64", "128", "256", "512")


def test_knobs_of_other_situations_are_left_out() -> None:
    assert "enable-expert-parallel" not in found()
    assert "quantization" not in found()
    old = replace(PLAN, engine_version="0.10.0")
    assert "async-scheduling" not in found(old) and "async-scheduling" in found()


def test_a_user_names_values_and_knobs_of_their_own() -> None:
    named = found(wanted={"quantization": ("", "fp8"), "new-flag": ("1", "2")}, fixed=("max-num-seqs",))
    assert named["quantization"].values == ("", "fp8")
    assert named["new-flag"].values == ("", "1", "2")
    assert "max-num-seqs" not in named


def test_only_other_number_formats_that_there_are() -> None:
    assert "scheme" not in found(schemes=("bf16",))
    assert found(schemes=("bf16", "fp8"))["scheme"].values == ("bf16", "fp8")


def test_a_plan_with_knobs_turned() -> None:
    default = {"max-num-seqs": "256", "env:X": "", "kv-cache-dtype": "auto"}
    turned = space.applied(PLAN, {**default, "max-num-seqs": "64", "env:X": "1"}, default, {})
    assert turned.setting("max-num-seqs") == "64"
    assert turned.env == {"X": "1"}
    assert turned.setting("kv-cache-dtype") is None
    assert turned.setting("max-num-batched-tokens") == "8192"
    assert space.applied(PLAN, default, default, {}).settings == PLAN.settings


def test_another_number_format_takes_its_plan() -> None:
    other = replace(PLAN, scheme="fp8")
    assert space.applied(PLAN, {"scheme": "fp8"}, {"scheme": "bf16"}, {"fp8": other}).scheme == "fp8"
    with pytest.raises(UsageError):
        space.applied(PLAN, {"scheme": "int8"}, {"scheme": "bf16"}, {})


def test_what_cannot_start_is_counted_by_its_reason() -> None:
    knobs = tuple(found().values())
    kept, refused, size = space.combinations(
        knobs, lambda s: "too many" if s["max-num-seqs"] == "256" else None, seed=0
    )
    assert len(kept) + refused["too many"] == size
    assert all(s["max-num-seqs"] != "256" for s in kept)


@pytest.mark.parametrize("engine", facts.engines())
def test_every_row_is_a_setting_that_the_engine_takes(engine: str) -> None:
    known = {row.flag.removeprefix("--") for row in flags()}
    for row in facts.knobs(engine):
        assert row.values and row.because
        if engine == "vllm":
            assert row.name in known, row.name

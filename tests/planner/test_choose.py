"""What is worth making, and why the rest is not: pure decisions over made-up engines."""

import dataclasses
from collections.abc import Mapping

import pytest

from model_optimizer.core import (
    Artifact,
    Gate,
    Host,
    Launch,
    LayerGroup,
    ModelSpec,
    NoFeasiblePlan,
    Plan,
    Scheme,
    Setting,
    Slo,
    Term,
    Workload,
)
from model_optimizer.planner import Question, options

GIB = 1 << 30
GATE = Gate(recovery=0.9, top1=0.9, cosine=0.9, rank=0.9, source="made up")


def scheme(name: str, bits: int) -> Scheme:
    return Scheme(
        name=name, title=name, weight_bits=bits, weight_number="float", activation_bits=32,
        activation_number="float", gate=GATE, source="made up",
    )  # fmt: skip


SCHEMES = {"fp32": scheme("fp32", 32), "int8": scheme("int8", 8), "int4": scheme("int4", 4)}
MODEL = ModelSpec(
    name="m", architecture="X", model_type="x", task="generate", parameters=10**9, active_parameters=10**9,
    embedding_parameters=0, layers=2, hidden_size=8, intermediate_size=8, vocab_size=8, heads=1, kv_heads=1,
    head_dim=8, attention="mha", groups=(LayerGroup(kind="mha", layers=2),),
)  # fmt: skip
CHECKPOINT = Artifact(
    path="/m", format="safetensors", scheme="fp32", task="generate", bytes=1, digest="sha256:0"
)


@dataclasses.dataclass
class FakeEngine:
    """An engine whose memory is its weights alone."""

    READS: Mapping[str, frozenset[str]]
    TITLE: str = "fake"
    TASKS: frozenset[str] = frozenset({"generate"})
    DEVICES: frozenset[str] = frozenset({"cpu"})
    ENVIRONMENT: str = "here"
    BASELINE: bool = False

    def memory(self, model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
        count = model.parameters * scheme.weight_bits // 8
        return (Term(name="weights", bytes=count, because="bits", source="derived"),)

    def settings(self, model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
        return (Setting(name="threads", value="2", because="two cores", source="derived"),)

    def launch(self, plan: Plan, port: int) -> Launch:
        return Launch(environment=self.ENVIRONMENT)


BASE = FakeEngine(READS={"safetensors": frozenset({"fp32"})}, BASELINE=True)
RIVAL = FakeEngine(READS={"onnx": frozenset({"fp32", "int8", "int4"})})
ENGINES = {"plain": BASE, "rival": RIVAL}
QUESTION = Question(
    host=Host(memory_available_bytes=16 * GIB), model=MODEL, checkpoint=CHECKPOINT,
    workload=Workload(concurrency=1), slo=Slo(), environments=frozenset({"here"}),
)  # fmt: skip


def find_path(scheme: str, file_format: str) -> tuple[str, ...] | None:
    if file_format == "safetensors":
        return () if scheme == "fp32" else None
    return {"fp32": ("export",), "int8": ("export", "quantize")}.get(scheme)


def ask(question: Question = QUESTION, engines: Mapping[str, FakeEngine] = ENGINES):
    return options(question, engines=engines, schemes=SCHEMES, find_path=find_path)


def test_every_way_that_works_is_kept_and_the_reference_stands_apart() -> None:
    found = ask()
    assert (found.reference.engine, found.reference.scheme) == ("plain", "fp32")
    assert [(p.engine, p.scheme, p.path) for p in found.plans] == [
        ("rival", "fp32", ("export",)),
        ("rival", "int8", ("export", "quantize")),
    ]


def test_what_is_not_taken_says_why() -> None:
    (only,) = ask().rejected
    assert (only.engine, only.scheme) == ("rival", "int4")
    assert only.reason == "no tool makes onnx of it in int4"


def test_memory_decides_with_the_numbers_shown() -> None:
    small = dataclasses.replace(QUESTION, budget_bytes=2 * GIB)
    with pytest.raises(NoFeasiblePlan) as caught:
        ask(small)
    assert "plain, fp32: needs 3.73 GiB of memory, 2 GiB may be used" in caught.value.cause


def test_unknown_memory_is_not_too_little_memory() -> None:
    unknown = dataclasses.replace(QUESTION, host=Host())
    assert len(ask(unknown).plans) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"DEVICES": frozenset({"gpu"})}, "runs on gpu only"),
        ({"TASKS": frozenset({"embed"})}, "does not handle the task `generate`"),
        ({"ENVIRONMENT": "not_here"}, "its environment is not there; `mopt env create not-here` makes it"),
    ],
)
def test_an_engine_that_cannot_is_rejected_with_its_reason(change: dict[str, object], reason: str) -> None:
    rival = dataclasses.replace(RIVAL, **change)  # pyright: ignore[reportArgumentType]
    found = ask(engines={"plain": BASE, "rival": rival})
    assert found.plans == ()
    assert [(r.engine, r.scheme, r.reason) for r in found.rejected] == [("rival", "any scheme", reason)]


def test_asking_for_something_impossible_is_no_feasible_plan() -> None:
    with pytest.raises(NoFeasiblePlan) as caught:
        ask(dataclasses.replace(QUESTION, schemes=("int4",)))
    assert caught.value.cause == ("rival, int4: no tool makes onnx of it in int4",)


def test_a_plan_carries_settings_with_reasons_and_the_host_it_is_for() -> None:
    found = ask()
    assert found.plans[0].settings[0].because == "two cores"
    assert found.plans[0].host_digest == found.reference.host_digest
    assert found.plans[0].estimate.memory_bytes == 4 * 10**9


def test_what_the_processor_lacks_is_a_reason() -> None:
    class Picky(FakeEngine):
        def lacks(self, model: ModelSpec, scheme: Scheme, host: Host) -> str | None:
            return "too few bits" if scheme.weight_bits == 8 else None

    engines = {"plain": BASE, "rival": Picky(READS=RIVAL.READS)}
    found = options(QUESTION, engines=engines, schemes=SCHEMES, find_path=find_path)
    assert [(p.engine, p.scheme) for p in found.plans] == [("rival", "fp32")]
    assert ("int8", "too few bits") in [(r.scheme, r.reason) for r in found.rejected]


def test_two_sizes_that_look_alike_have_their_difference_beside_them() -> None:
    question = dataclasses.replace(QUESTION, budget_bytes=4 * 10**9 - (4 << 20))
    with pytest.raises(NoFeasiblePlan) as caught:
        options(question, engines={"plain": BASE}, schemes=SCHEMES, find_path=find_path)
    assert "plain, fp32: needs 3.73 GiB of memory, 3.72 GiB may be used" in caught.value.cause
    question = dataclasses.replace(QUESTION, budget_bytes=4 * 10**9 - (1 << 18))
    with pytest.raises(NoFeasiblePlan) as caught:
        options(question, engines={"plain": BASE}, schemes=SCHEMES, find_path=find_path)
    assert caught.value.cause[0].endswith("3.73 GiB may be used: 256 KiB too few")

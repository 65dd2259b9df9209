"""The decision with handed functions: no arithmetic of memory or time stands behind these numbers."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from model_optimizer.core import (
    Estimate,
    Fit,
    FitQuestion,
    GpuMemory,
    Lengths,
    Link,
    Plan,
    Scheme,
    Setting,
    Slo,
    Spread,
    Term,
    UsageError,
    Workload,
)
from model_optimizer.core.site import Ability, Offer, Site
from model_optimizer.core.steps import Batch, StepTime
from model_optimizer.facts import gpus, prices
from model_optimizer.facts.prices import Hosted, Prices
from model_optimizer.planner.decide import Functions, PlanQuestion, Wishes, decide, steady
from model_optimizer.planner.decide.steady import Shape
from model_optimizer.planner.service import Limits
from model_optimizer.planner.service import Question as Service
from model_optimizer.planner.speed import Setup
from model_optimizer.schemes import awq_int4, bf16, fp8
from model_optimizer.testing.engine_contract import sample_model

GIB = 2**30
SCHEMES = {"bf16": bf16.SCHEME, "fp8": fp8.SCHEME, "awq_int4": awq_int4.SCHEME}
MODEL = dataclasses.replace(
    sample_model("generate"), dtype="bf16", parameters=8_000_000_000, max_position=32768
)


class FakeEngine:
    """Serves everything, with the name and order of a real one."""

    TITLE = "fake"
    READS: ClassVar = {"safetensors": frozenset(SCHEMES)}
    TASKS = frozenset({"generate", "embed"})
    DEVICES = frozenset({"gpu"})
    ENVIRONMENT = "fake"
    ONE_PROCESS = False

    def __init__(
        self, memory: str = "vllm", refuses: tuple[str, ...] = (), broken: str | None = None
    ) -> None:
        self.MEMORY, self._refuses, self._broken = memory, refuses, broken

    def versions(self) -> tuple[str, ...]:
        return ("0.25.1", "0.33.0")

    def offer(self, model: object, site: Site, version: str) -> Offer:
        holds = self._broken is None or version != "0.33.0"
        link = Link(name=self._broken or "architecture", holds=holds, says="so it is", source="test")
        return Offer(version=version, image=f"image:{version}", cuda="13.0", links=(link,))

    def ability(self, scheme: Scheme, site: Site, version: str) -> Ability:
        how = "no" if scheme.name in self._refuses else "native"
        return Ability(how=how, because=f"{scheme.name} is {how}", source="test")

    def command(self, plan: Plan, port: int) -> tuple[str, ...]:
        return ("serve", plan.checkpoint, str(port))

    def container(self, plan: Plan, port: int) -> tuple[str, ...]:
        return ("docker", plan.checkpoint)


class FakeSteps:
    """A step takes `base` milliseconds, and `each` for every sequence and hundred prompt tokens."""

    kind = "roofline"
    provenance = "a made-up step"

    def __init__(self, base: float, each: float = 0.01) -> None:
        self.base, self.each = base, each

    def mixed_ms(self, batch: Batch) -> float:
        return self.base + self.each * (batch.sequences + batch.tokens / 100)

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        return self.mixed_ms(Batch(tokens=tokens * sequences))

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.mixed_ms(Batch(sequences=sequences, context=context))

    def explain(self, batch: Batch) -> StepTime:
        return StepTime(ms=self.mixed_ms(batch), bound="compute")


def fake_fit(room: float = 70 * GIB) -> Callable[[FitQuestion], Fit]:
    """Weights alone decide: parameters x bits / GPUs against the room of a GPU."""

    def fit(asked: FitQuestion) -> Fit:
        bits = asked.scheme.weight_bits if asked.scheme else 16
        weights = asked.model.parameters * bits // 8 // (asked.tensor_parallel * asked.pipeline_parallel)
        left = int(room) - weights
        per_token = 100_000 // (2 if asked.kv_cache_dtype == "fp8" else 1)
        tokens = max(0, left) // per_token
        length = asked.max_model_len or 2048
        fits = tokens >= length
        return Fit(
            fits=fits, binding="weights" if left < 0 else "kv_cache", because="made up",
            weights_bytes=weights, activation_bytes=0, cuda_graph_bytes=0, non_torch_bytes=0,
            kv_cache_bytes=max(0, left), kv_bytes_per_token=per_token, kv_cache_tokens=tokens,
            max_concurrency=tokens / length, largest_max_model_len=tokens or None,
            terms=(Term(name="weights", bytes=weights, because="made up", source="derived"),),
            model=asked.model.name, gpu=asked.gpu.name, engine="vllm", scheme="x", total_bytes=asked.gpu.total_bytes,
            budget_bytes=int(room), max_model_len=length, max_num_seqs=asked.max_num_seqs,
        )  # fmt: skip

    return fit


def fake_estimate(asked: Service) -> Estimate:
    found = asked.steps.decode_ms(4, 500)
    spread = Spread(p50=found, mean=found, p99=found)
    return Estimate(ttft_ms=spread, tpot_ms=spread, e2e_ms=spread, requests_per_s=1.0, provenance="played")


def step_of(times: dict[str, float]) -> Callable[[Setup], FakeSteps]:
    return lambda setup: FakeSteps(times[setup.scheme.name] / setup.tensor_parallel)


def functions(**changes: Any) -> Functions:
    made = Functions(
        fit=fake_fit(),
        steps=step_of({"bf16": 10.0, "fp8": 6.0, "awq_int4": 4.0}),
        estimate=fake_estimate,
        engines={"vllm": FakeEngine()},
        schemes=SCHEMES,
    )
    return dataclasses.replace(made, **changes)


def question(**changes: Any) -> PlanQuestion:
    fact = gpus.find("h100")
    asked = PlanQuestion(
        model=MODEL,
        checkpoint="some/model",
        site=Site(gpu=fact.name, compute_capability=(9, 0), memory_bytes=80 * GIB, server=True),
        card=GpuMemory(name=fact.name, total_bytes=80 * GIB, compute_capability=(9, 0)),
        gpu=fact,
        workload=Workload(
            qps=2.0, arrivals="poisson", prompt_tokens=Lengths.fixed(500), output_tokens=Lengths.fixed(100)
        ),
        slo=Slo(),
    )
    return dataclasses.replace(asked, **changes)


def load(qps: float) -> Workload:
    return dataclasses.replace(question().workload, qps=qps)


# -- the order: cost, then quality, then simplicity


def test_with_equal_cost_the_more_precise_format_wins() -> None:
    found = decide(question(), functions())
    assert (found.feasible, found.scheme, found.gpus) == (True, "bf16", 1)
    assert {r.scheme for r in found.rejected if "costs more quality" in r.reason} == {"fp8", "awq_int4"}


def test_fewer_gpus_win_over_quality() -> None:
    # 8 G parameters: 16 GB in bf16, 4 GB in 4 bits; a GPU has 10 GB.
    found = decide(question(gpus=4), functions(fit=fake_fit(10e9)))
    assert found.gpus == 1 and found.scheme in ("fp8", "awq_int4")
    assert any("takes 2 GPUs instead of 1" in r.reason for r in found.rejected)


def test_a_load_that_one_replica_cannot_take_is_shared() -> None:
    one = decide(question(workload=load(2.0), gpus=8), functions())
    many = decide(question(workload=load(400.0), gpus=8), functions())
    assert one.replicas == 1
    assert many.feasible and 1 < many.gpus < 8


def test_a_fleet_gets_a_spare_where_there_is_a_gpu_for_it() -> None:
    wish = Wishes(scheme="bf16", tensor_parallel=1)
    slow = functions(steps=lambda setup: FakeSteps(10.0, each=1.0))
    found = decide(question(workload=load(20.0), gpus=8, wishes=wish), slow)
    assert found.feasible and found.replicas > 2
    said = next(d.conclusion for d in found.derivations if d.title == "replicas")
    assert "1 spare, for when one dies (its GPUs were left: no cost in the choice)" in said
    none = decide(question(workload=load(20.0), gpus=8, wishes=dataclasses.replace(wish, spares=0)), slow)
    assert none.replicas == found.replicas - 1


def test_a_spare_that_nobody_asked_for_is_no_cost_of_the_choice() -> None:
    """Two replicas of one GPU, or one of two GPUs: the second is no cheaper for want of a spare."""

    def chosen(gpus: int, spares: int | None) -> Plan:
        fast = functions(
            steps=lambda setup: FakeSteps(10.0 / setup.tensor_parallel, each=1.0 / setup.tensor_parallel)
        )
        asked = question(workload=load(10.0), gpus=gpus, wishes=Wishes(scheme="bf16", spares=spares))
        return decide(asked, fast, play=False)

    assert [(p.tensor_parallel, p.replicas) for p in (chosen(4, None), chosen(4, 0))] == [(1, 3), (1, 2)]
    assert chosen(2, None).replicas == 2, "no GPU is left for a spare"
    assert (chosen(4, 1).tensor_parallel, chosen(4, 1).replicas) == (1, 3), "two of two GPUs would be four"


@pytest.mark.parametrize(
    ("spares", "says"),
    [
        (None, "1 GPU instead of 2: a replica takes 611 requests/s; spares are not counted"),
        (0, "1 GPU instead of 2: a replica takes 611 requests/s"),
        (1, "2 GPUs instead of 3: a replica takes 611 requests/s; 1 spare counted"),
    ],
)
def test_a_crossover_counts_spares_as_the_choice_does(spares: int | None, says: str) -> None:
    found = decide(question(workload=load(2.0), gpus=64, wishes=Wishes(spares=spares)), functions())
    assert found.crossover[0].because == says


def test_the_tree_orders_engines_and_measurements_replace_it() -> None:
    two = functions(engines={"sglang": FakeEngine("other"), "vllm": FakeEngine()})
    assert decide(question(), two).engine == "vllm"
    measured = {("sglang", "bf16"): 20.0, ("vllm", "bf16"): 10.0}
    assert decide(question(measured=measured), two).engine == "sglang"


def test_an_engine_with_borrowed_memory_is_not_worked_out_twice() -> None:
    two = functions(engines={"sglang": FakeEngine("vllm"), "vllm": FakeEngine()})
    found = decide(question(), two)
    assert all("no better than vllm" in r.reason for r in found.rejected if r.engine == "sglang")
    refusing = {"sglang": FakeEngine("vllm"), "vllm": FakeEngine(refuses=tuple(SCHEMES))}
    assert decide(question(), functions(engines=refusing)).engine == "sglang"


def test_borrowed_memory_is_marked() -> None:
    borrowed = functions(engines={"sglang": FakeEngine("vllm")})
    assert {t.source for t in decide(question(), borrowed).estimate.memory} == {"assumed"}
    assert {t.source for t in decide(question(), functions()).estimate.memory} == {"derived"}


# -- the chain


def test_the_newest_release_whose_chain_holds_is_taken() -> None:
    found = decide(question(), functions(engines={"vllm": FakeEngine(broken="driver")}))
    assert found.engine_version == "0.25.1" and found.image == "image:0.25.1"


def test_a_release_that_was_asked_for_is_not_replaced() -> None:
    engines = {"vllm": FakeEngine(broken="driver")}
    found = decide(question(wishes=Wishes(version="0.33.0")), functions(engines=engines))
    assert not found.feasible and found.binding == "driver"
    assert [n.plan.engine_version for n in found.nearest if n.axis == "engine"] == ["0.25.1"]


# -- nothing feasible


def test_a_limit_that_no_load_keeps_names_itself_and_how_far_off_it_is() -> None:
    found = decide(question(slo=Slo(tpot_ms=3)), functions())
    assert (found.feasible, found.binding, found.short_by_unit) == (False, "tpot_ms", "ms")
    assert found.short_by == pytest.approx(1.0, abs=0.2), "4 bits take 4 ms, 3 were asked"
    axes = {n.axis: n for n in found.nearest}
    assert axes["latency"].plan.feasible


def test_each_near_plan_is_feasible_and_says_what_changes() -> None:
    asked = question(wishes=Wishes(scheme="bf16"), workload=load(2.0))
    found = decide(asked, functions(fit=fake_fit(10e9)))
    assert not found.feasible and found.binding == "memory" and (found.short_by or 0) > 5e9
    axes = {n.axis for n in found.nearest}
    assert {"bits", "gpus"} <= axes
    assert all(n.plan.feasible and n.change for n in found.nearest)


def test_a_smaller_context_is_offered() -> None:
    asked = question(wishes=Wishes(scheme="bf16", max_model_len=30_000, kv_cache_dtype="auto"))
    found = decide(asked, functions(fit=fake_fit(18e9)))
    assert not found.feasible
    near = next(n for n in found.nearest if n.axis == "context")
    assert int(near.plan.setting("max-model-len") or 0) < 30_000


def test_fewer_requests_are_offered() -> None:
    slow = functions(steps=lambda setup: FakeSteps(10.0, each=1.0))
    found = decide(question(workload=load(500.0)), slow)
    assert not found.feasible and found.binding == "gpus" and found.short_by_unit == "GPUs"
    near = next(n for n in found.nearest if n.axis == "qps")
    assert (near.plan.workload.qps or 0) < 500


def test_what_the_played_load_breaks_is_not_chosen() -> None:
    def played(asked: Service) -> Estimate:
        slow = asked.steps.decode_ms(4, 500) > 8
        return Estimate(ttft_ms=Spread(p99=900.0 if slow else 50.0), provenance="played")

    found = decide(question(slo=Slo(ttft_ms=200)), functions(estimate=played))
    assert found.scheme == "fp8"
    assert any("TTFT P99 is 900 ms" in r.reason for r in found.rejected if r.scheme == "bf16")


def test_saturation_is_never_given_as_a_plan() -> None:
    full = functions(estimate=lambda asked: Estimate(saturated=True, requests_per_s=1.0, provenance="played"))
    found = decide(question(), full, nearest=False)
    assert not found.feasible
    assert any("saturated" in r.reason for r in found.rejected)


# -- settings


def test_every_setting_has_a_reason_and_a_source() -> None:
    found = decide(question(slo=Slo(tpot_ms=50)), functions())
    assert all(isinstance(s, Setting) and s.because and s.source for s in found.settings)
    assert all(d.conclusion and d.source for d in found.derivations)


def test_slots_follow_littles_law() -> None:
    few, many = (decide(question(workload=load(q)), functions()) for q in (1.0, 30.0))
    assert int(few.setting("max-num-seqs") or 0) < int(many.setting("max-num-seqs") or 0)
    closed = dataclasses.replace(question().workload, qps=None, concurrency=24, arrivals="closed")
    assert decide(question(workload=closed), functions()).setting("max-num-seqs") == "24"


def test_smaller_steps_of_prompts_keep_the_time_per_token() -> None:
    costly = functions(steps=lambda setup: FakeSteps(5.0, each=0.5))
    work = dataclasses.replace(load(10.0), prompt_tokens=Lengths.fixed(8000))
    loose = decide(question(workload=work), costly)
    assert next(s.source for s in loose.settings if s.name == "max-num-batched-tokens") == "table"
    shape = Shape(prompt=8000, prompt_p99=8000, output=100, output_p99=100)
    from model_optimizer.planner.decide.judge import tail_tpot

    found = steady.at_rate(FakeSteps(5.0, each=0.5), Limits(max_num_batched_tokens=8192), shape, 1.0)
    small, large = (tail_tpot(FakeSteps(5.0, each=0.5), found, shape, n) for n in (512, 8192))
    assert small < large


def test_what_the_user_said_is_kept_and_marked() -> None:
    wishes = Wishes(
        max_num_seqs=40, max_num_batched_tokens=4096, max_model_len=4096, gpu_memory_utilization=0.8
    )
    found = decide(question(wishes=wishes), functions())
    for name, value in (
        ("max-num-seqs", "40"),
        ("max-num-batched-tokens", "4096"),
        ("max-model-len", "4096"),
    ):
        one = next(s for s in found.settings if s.name == name)
        assert (one.value, one.source) == (value, "user")


def test_memory_that_others_hold_lowers_the_share_of_the_card() -> None:
    card = dataclasses.replace(question().card, used_bytes=16 * GIB)
    found = decide(question(card=card), functions())
    share = next(s for s in found.settings if s.name == "gpu-memory-utilization")
    assert float(share.value) <= 0.8 and share.source == "derived"


def test_eager_mode_only_when_memory_forces_it() -> None:
    def tight(asked: FitQuestion) -> Fit:
        found = fake_fit()(asked)
        return found if asked.enforce_eager else dataclasses.replace(found, fits=False)

    forced = decide(question(), functions(fit=tight))
    assert forced.setting("enforce-eager") == "1"
    assert decide(question(), functions()).setting("enforce-eager") is None


# -- crossover and money


def test_crossover_is_where_the_other_needs_fewer_gpus() -> None:
    found = decide(question(gpus=8, workload=load(2.0)), functions())
    assert found.crossover
    first = found.crossover[0]
    assert first.above > 2.0 and first.scheme in ("fp8", "awq_int4") and "instead of" in first.because


def test_cost_and_break_even() -> None:
    file = Prices(
        currency="EUR",
        gpu_per_hour={"H100 SXM5 80GB": 2.0},
        hosted_per_million_tokens=Hosted(input=1.0, output=2.0),
        source=("test",),
    )
    found = decide(question(prices=file), functions()).cost
    assert found is not None and found.per_hour == 2.0
    # 1 request/s of 500 + 100 tokens was played: 0.36 M output tokens an hour.
    assert found.per_million_output_tokens == pytest.approx(2.0 / 0.36)
    assert found.hosted_per_hour == pytest.approx(3600 * 0.0007)
    assert found.break_even_tokens_per_day == pytest.approx(48 / 0.0007 * 600)
    with pytest.raises(UsageError, match="does not say what an hour of H100"):
        decide(question(prices=Prices(currency="EUR", gpu_per_hour={"L4": 1.0}, source=("t",))), functions())


def test_the_example_price_file_loads_and_a_broken_one_is_refused(tmp_path: Any) -> None:
    assert prices.load(prices.EXAMPLE).gpu_per_hour == prices.example().gpu_per_hour
    for text in ("", "currency = 3", 'currency = "EUR"\n[gpu_per_hour]\nH100 = -1.0', "\xff"):
        (tmp_path / "p.toml").write_text(text)
        with pytest.raises(UsageError):
            prices.load(tmp_path / "p.toml")


# -- contradictions


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wishes": Wishes(tensor_parallel=3), "gpus": 3}, "does not divide"),
        ({"wishes": Wishes(tensor_parallel=8)}, "take 8 GPUs, there are 1"),
        ({"wishes": Wishes(max_num_seqs=512, max_num_batched_tokens=64)}, "less than --max-num-seqs"),
        ({"slo": Slo(ttft_ms=100, e2e_ms=50)}, "less than --ttft-ms"),
        ({"wishes": Wishes(max_model_len=100)}, "less than the requests of the load"),
        ({"wishes": Wishes(max_model_len=10**6)}, "above the limit"),
        ({"wishes": Wishes(engine="nobody")}, "no engine `nobody`"),
        ({"wishes": Wishes(scheme="nothing")}, "no scheme `nothing`"),
        ({"wishes": Wishes(scheme="bf16", dtype="fp16")}, "contradict each other"),
        ({"wishes": Wishes(vram_bytes=10**12)}, "more than the memory"),
        ({"model": dataclasses.replace(MODEL, task="embed"), "slo": Slo(tpot_ms=5)}, "generates no tokens"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        decide(question(**changes), functions())
    assert words in caught.value.message


# -- the steady state


def test_the_steady_state_keeps_littles_law_and_saturates() -> None:
    shape = Shape(prompt=500, prompt_p99=500, output=100, output_p99=100)
    steps, limits = FakeSteps(10.0, each=0.1), Limits(max_num_seqs=64, max_num_batched_tokens=2048)
    light, heavy = (steady.at_rate(steps, limits, shape, rate) for rate in (1.0, 500.0))
    assert light.why is None and light.running == pytest.approx(1e-3 * 100 * light.step_ms, rel=0.02)
    assert heavy.why is not None
    most = steady.most(steps, limits, shape, Slo(), closed=False)
    assert steady.at_rate(steps, limits, shape, most).why is None
    assert steady.at_rate(steps, limits, shape, most * 1.1).why is not None
    clients = steady.at_concurrency(steps, limits, shape, 8)
    assert clients.in_flight == pytest.approx(8, rel=0.05)


def test_what_breaks_under_its_load_comes_back_with_one_more_replica() -> None:
    def played(asked: Service) -> Estimate:
        crowded = asked.replicas < 3
        return Estimate(ttft_ms=Spread(p99=900.0 if crowded else 50.0), provenance="played")

    wishes = Wishes(scheme="bf16", tensor_parallel=1, spares=0)
    found = decide(question(gpus=8, slo=Slo(ttft_ms=200), wishes=wishes), functions(estimate=played))
    assert found.feasible and found.replicas == 3
    alone = decide(
        question(gpus=2, slo=Slo(ttft_ms=200), wishes=wishes), functions(estimate=played), nearest=False
    )
    assert not alone.feasible and alone.binding == "ttft_ms"

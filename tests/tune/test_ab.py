"""Two plans side by side: differences are named, and the one that explains a loss is found by putting it back."""

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from model_optimizer.core import LoadPoint, Plan, Setting, Slo, Workload
from model_optimizer.tune import Order, Outcome, Shared
from model_optimizer.tune.ab import Duellists, SideBySide, differences, put_back, side_by_side
from model_optimizer.tune.objective import Aim
from model_optimizer.tune.turns import Measure


def plan(version: str, env: dict[str, str] | None = None, **settings: str) -> Plan:
    return Plan(
        model="m",
        checkpoint="m",
        workload=Workload(concurrency=8),
        slo=Slo(),
        engine="vllm",
        engine_version=version,
        scheme="bf16",
        format="safetensors",
        env=env or {},
        settings=tuple(
            Setting(name=name.replace("_", "-"), value=value, because="", source="user")
            for name, value in settings.items()
        ),
    )


A = plan("0.25.1", max_num_seqs="256", block_size="16")
B = plan("0.33.0", {"VLLM_X": "1"}, max_num_seqs="64", block_size="16")
DEFAULTS = {
    "max-num-batched-tokens": ("8192", "16384"),
    "kv-cache-dtype": ("auto", "auto"),
    "max-num-seqs": ("1", "2"),
}


def compared(
    rate: Callable[[Plan], float],
    b: Plan = B,
    seen: list[Plan] | None = None,
    share: Callable[[Sequence[Order]], Shared | str] = lambda orders: "not here",
) -> SideBySide:
    draw = random.Random(5)

    def execute(orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
        for order in orders:
            if seen is not None:
                seen.append(order.plan)
            value = rate(order.plan) * draw.uniform(0.99, 1.01)
            point = LoadPoint(target="8", completed=9, failed=0, window_s=1.0, requests_per_s=value)
            yield order, Outcome(state="measured", points=(point,))

    given = Duellists(
        aim=Aim(objective="goodput", slo=Slo()),
        execute=execute,
        share=share,
        repeats=3,
        most=4,
        seed=0,
        progress=lambda text, share: None,
    )
    return side_by_side(A, b, given, defaults=DEFAULTS)


def test_what_differs_is_named_with_where_it_is_from() -> None:
    found = {d.name: d for d in differences(A, B, DEFAULTS)}
    assert set(found) == {"max-num-seqs", "VLLM_X", "max-num-batched-tokens"}
    assert (found["max-num-seqs"].a, found["max-num-seqs"].b) == ("256", "64")
    assert "default changed between 0.25.1 and 0.33.0" in found["max-num-batched-tokens"].because


def test_a_setting_a_default_and_a_variable_are_put_back() -> None:
    back = {d.name: put_back(B, d) for d in differences(A, B, DEFAULTS)}
    assert back["max-num-seqs"].setting("max-num-seqs") == "256"
    assert back["max-num-batched-tokens"].setting("max-num-batched-tokens") == "8192"
    assert back["VLLM_X"].env == {}


def test_the_difference_that_explains_a_loss_is_found() -> None:
    def rate(p: Plan) -> float:
        slow = p.engine_version == "0.33.0" and p.setting("max-num-batched-tokens") is None
        return 8.0 if slow else 10.0

    found = compared(rate)
    assert found.duel.decision == "worse"
    assert "`max-num-batched-tokens` explains it" in found.because
    verdicts = {c.name: c.verdict.decision for c in found.explained}
    assert verdicts["max-num-batched-tokens"] == "better"
    assert verdicts["max-num-seqs"] != "better"


def test_a_loss_that_nothing_explains_is_said_to_be_the_release() -> None:
    found = compared(lambda p: 8.0 if p.engine_version == "0.33.0" else 10.0)
    assert "the release itself" in found.because


def test_what_is_faster_needs_no_explanation() -> None:
    seen: list[Plan] = []
    found = compared(lambda p: 12.0 if p.engine_version == "0.33.0" else 10.0, seen=seen)
    assert found.duel.decision == "better" and not found.explained
    assert len(seen) == 6


def test_noise_is_not_called_a_difference() -> None:
    found = compared(lambda p: 10.0)
    assert found.duel.decision == "undecided" and not found.explained


def test_plans_that_are_the_same_say_so() -> None:
    assert differences(A, A, {}) == ()


def test_servers_that_stand_by_each_other_take_turns() -> None:
    opened: list[list[Order]] = []

    @contextmanager
    def bench(orders: Sequence[Order]) -> Generator[Measure]:
        opened.append(list(orders))

        def measure(order: Order) -> Outcome:
            rate = 12.0 if order.settings["arm"] == "b" else 10.0
            found = LoadPoint(
                target="8", completed=9, failed=0, window_s=1.0, requests_per_s=rate + 0.01 * order.round
            )
            return Outcome(state="measured", points=(found,), beside={"share": "0.4"})

        yield measure

    def never(p: Plan) -> float:
        raise AssertionError("a start of its own")

    found = compared(never, share=lambda orders: Shared(open=bench, because="two fit"))
    assert found.duel.decision == "better" and found.duel.resident
    assert len(opened) == 1 and {o.settings["arm"] for o in opened[0]} == {"a", "b"}
    assert any("two fit" in note for note in found.notes)

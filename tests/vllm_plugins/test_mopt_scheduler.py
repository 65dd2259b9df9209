"""The rules of the token budget on queues whose steps take a known time; vLLM itself is not needed."""

import random
import sys
from types import ModuleType, SimpleNamespace

import pytest

from model_optimizer.vllm_plugins import mopt_scheduler
from model_optimizer.vllm_plugins.mopt_scheduler import Budget, StepTime, from_environment

FIXED_MS, TOKEN_MS = 8.0, 0.02


def step_ms(prompts: int) -> float:
    return FIXED_MS + TOKEN_MS * prompts


def learned(budget: Budget) -> Budget:
    for tokens in (0, 100, 2000) * 10:
        budget.steps.learn(tokens, step_ms(tokens))
    return budget


def test_a_line_is_learned_from_steps() -> None:
    steps = StepTime()
    draw = random.Random(1)
    for _ in range(200):
        tokens = draw.randint(1, 4000)
        steps.learn(tokens, step_ms(tokens) * draw.uniform(0.97, 1.03))
    found = steps.line()
    assert found is not None
    assert found[0] == pytest.approx(FIXED_MS, abs=1.5)
    assert found[1] == pytest.approx(TOKEN_MS, rel=0.05)


def test_it_follows_steps_that_get_slower() -> None:
    steps = StepTime()
    for ms in (0.01, 0.05):
        for turn in range(300):
            tokens = 100 + turn % 50 * 40
            steps.learn(tokens, 5 + ms * tokens)
    found = steps.line()
    assert found is not None and found[1] == pytest.approx(0.05, rel=0.05)


def test_steps_that_are_all_alike_count_wholly_by_their_tokens() -> None:
    steps = StepTime()
    assert steps.line() is None
    for _ in range(50):
        steps.learn(64, 10.0)
    assert steps.line() == (0.0, pytest.approx(10 / 64))


def test_a_long_stretch_of_answers_alone_does_not_wipe_out_what_prompts_cost() -> None:
    steps = learned(Budget(most=8192)).steps
    draw = random.Random(2)
    for _ in range(5000):
        steps.learn(0, FIXED_MS * draw.uniform(0.9, 1.1))
    found = steps.line()
    assert found is not None and found[1] == pytest.approx(TOKEN_MS, rel=0.1)


def test_a_step_that_compiled_is_soon_forgotten() -> None:
    budget = learned(Budget(most=8192))
    budget.steps.learn(2000, 30_000.0)
    for tokens in (0, 100, 2000) * 10:
        budget.steps.learn(tokens, step_ms(tokens))
    found = budget.steps.line()
    assert found is not None and found[1] < 1.5 * TOKEN_MS


def arrivals() -> list[tuple[int, int]]:
    """(ms, prompt tokens) of a recorded queue: half 10 and half 2,000 tokens, in bursts."""
    draw = random.Random(3)
    now, found = 0, list[tuple[int, int]]()
    for _ in range(400):
        now += draw.choice((0, 0, 0, 0, 160))
        found.append((now, draw.choice((10, 2000))))
    return found


def served(
    rule: str, tpot_ms: float = 30.0, most: int = 8192, answers: int = 64
) -> tuple[list[float], float]:
    """Play the queue: (time per output token of each request, ms until the last prompt was read)."""
    budget = learned(Budget(most=most, rule=rule, tpot_ms=tpot_ms))
    waiting, now, read = arrivals(), 0.0, 0.0
    budget.lengths.extend(tokens for _, tokens in waiting[:64])
    running: list[list[float]] = []  # [tokens left, ms at its first token]
    tpots: list[float] = []
    while waiting or running:
        here = [w for w in waiting if w[0] <= now]
        if not here and not running:
            now = waiting[0][0]
            continue
        decoding = len(running)
        left = budget.tokens(decoding, now - here[0][0] if here else 0.0) - decoding
        prompts, done = 0, 0
        while waiting and waiting[0][0] <= now and left > 0:
            at, tokens = waiting[0]
            taken = min(tokens, left)
            prompts, left = prompts + taken, left - taken
            if taken == tokens:
                waiting.pop(0)
                done += 1
            else:
                waiting[0] = (at, tokens - taken)
        ms = step_ms(prompts)
        budget.took(decoding, prompts, ms)
        now += ms
        read = now if done else read
        for answer in running:
            answer[0] -= 1
        tpots += [(now - first) / (answers - 1) for tokens, first in running if not tokens]
        running = [r for r in running if r[0]] + [[answers - 1, now] for _ in range(done)]
    return tpots, read


def test_the_limit_holds_for_every_request_of_a_recorded_queue() -> None:
    tpots, _ = served("adaptive")
    assert len(tpots) == 400
    assert max(tpots) <= 30


def test_without_a_rule_it_does_not_hold() -> None:
    tpots, _ = served("fixed")
    assert max(tpots) > 33


def test_time_that_was_saved_lets_a_prompt_in_at_once() -> None:
    budget = learned(Budget(most=8192, tpot_ms=30.0))
    before = budget.tokens(8, 0.0)
    for _ in range(20):
        budget.took(8, 0, 8.0)
    assert budget.tokens(8, 0.0) > before + 2000
    budget.took(8, 6000, step_ms(6000))
    budget.took(8, 6000, step_ms(6000))
    assert budget.tokens(8, 0.0) < before


def test_the_rule_of_lengths() -> None:
    for length, tokens in ((10, 4096), (127, 4096), (128, 2048), (511, 2048), (512, 1024), (5000, 1024)):
        budget = Budget(most=8192, rule="lengths")
        budget.lengths.append(length)
        assert budget.tokens(4, 0.0) == tokens
    assert Budget(most=512, rule="lengths").tokens(4, 0.0) == 512


def test_nobody_is_held_up_when_nothing_is_generated() -> None:
    budget = learned(Budget(most=8192, tpot_ms=10.0))
    assert budget.tokens(0, 0.0) == 8192
    assert budget.tokens(8, 0.0) < 2000


def test_a_limit_that_cannot_be_kept_still_lets_prompts_in() -> None:
    assert learned(Budget(most=8192, tpot_ms=1.0)).tokens(40, 0.0) == 40 + mopt_scheduler.LEAST


def test_prompts_that_near_their_own_limit_are_let_in_faster_within_the_limit_of_answers() -> None:
    budget = learned(Budget(most=8192, tpot_ms=30.0))
    calm, late, too_late = (budget.tokens(8, waited) for waited in (0.0, 1000.0, 9000.0))
    assert calm < late == too_late
    assert step_ms(late - 8) <= 30.0


def test_the_environment_names_rule_and_limits() -> None:
    given = {
        "MOPT_SCHEDULER_RULE": "lengths",
        "MOPT_SCHEDULER_TPOT_MS": "25",
        "MOPT_SCHEDULER_TTFT_MS": "500",
    }
    found = from_environment(100, given)
    assert (found.rule, found.tpot_ms, found.ttft_ms, found.most) == ("lengths", 25.0, 500.0, 100)
    for nothing in ("soon", "-1", "inf", "nan", ""):
        assert from_environment(100, {"MOPT_SCHEDULER_TPOT_MS": nothing}).tpot_ms is None
    assert from_environment(100, {}).tokens(8, 0.0) == 100


def test_a_rule_that_there_is_not_ends_the_start() -> None:
    with pytest.raises(ValueError, match="known: adaptive, lengths, fixed"):
        from_environment(100, {"MOPT_SCHEDULER_RULE": "length"})


def request(name: str, prompt: int, computed: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=name, num_prompt_tokens=prompt, num_computed_tokens=computed, arrival_time=0.0
    )


@pytest.mark.parametrize(
    ("asynchronous", "place", "name"),
    [
        (True, "vllm.v1.core.sched.async_scheduler", "AsyncScheduler"),
        (False, "vllm.v1.core.sched.scheduler", "Scheduler"),
    ],
)
def test_it_sits_on_top_of_the_scheduler_that_fits(
    asynchronous: bool, place: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for vLLM's class: the budget is set before each step, and steps are learned from."""
    budgets: list[int] = []

    class Own:
        def __init__(self, vllm_config: SimpleNamespace, *, block_size: int) -> None:
            self.max_num_scheduled_tokens = 4096
            self.running = [request("a", 10, computed=20)]
            self.waiting: list[SimpleNamespace] = []

        def add_request(self, request: SimpleNamespace) -> None:
            self.waiting.append(request)

        def schedule(self, throttle_prefills: bool = False) -> SimpleNamespace:
            budgets.append(self.max_num_scheduled_tokens)
            return SimpleNamespace(total_num_scheduled_tokens=100)

        def update_from_output(self, scheduler_output: SimpleNamespace, output: object) -> str:
            return "done"

    module = ModuleType(place)
    setattr(module, name, Own)
    monkeypatch.setitem(sys.modules, place, module)
    monkeypatch.setenv("MOPT_SCHEDULER_RULE", "lengths")
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=asynchronous))
    scheduler = mopt_scheduler.AdaptiveScheduler(vllm_config=config, block_size=16)
    assert isinstance(scheduler, Own)
    scheduler.add_request(request("b", 600))
    first, second = scheduler.schedule(), scheduler.schedule(throttle_prefills=True)
    assert budgets == [1024, 1024]
    assert scheduler.update_from_output(first, None) == "done"
    assert scheduler.update_from_output(second, None) == "done"
    learned_from: Budget = vars(scheduler)["_budget"]
    assert learned_from.steps.mixed.weight == pytest.approx(1 + mopt_scheduler.FORGETS)
    assert learned_from.steps.mixed.tokens == pytest.approx(99 * (1 + mopt_scheduler.FORGETS))

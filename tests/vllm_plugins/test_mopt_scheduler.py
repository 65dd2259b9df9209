"""The rules of the token budget on queues whose steps take a known time; vLLM itself is not needed."""

import random
import sys
from types import ModuleType, SimpleNamespace

import pytest

from model_optimizer.vllm_plugins import mopt_scheduler
from model_optimizer.vllm_plugins.mopt_scheduler import Budget, StepTime, from_environment

FIXED_MS, TOKEN_MS = 8.0, 0.02


def step_ms(tokens: int) -> float:
    return FIXED_MS + TOKEN_MS * tokens


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


def served(rule: str, tpot_ms: float | None = 30.0, warm: int = 20) -> tuple[list[float], int]:
    """Play a queue of 10 and 2000 token prompts: (ms of steps that held up answers, prompt tokens done)."""
    budget = Budget(most=8192, rule=rule, tpot_ms=tpot_ms)
    waiting = [2000 if i % 4 == 0 else 10 for i in range(400)]
    budget.lengths.extend(waiting[:64])
    times, done, decoding = [], 0, 32
    for turn in range(300):
        most = budget.tokens(decoding, sum(waiting), waited_ms=100.0)
        prompts = 0
        while waiting and prompts < most - decoding:
            taken = min(waiting[0], most - decoding - prompts)
            prompts += taken
            waiting[0] -= taken
            if not waiting[0]:
                waiting.pop(0)
        ms = step_ms(decoding + prompts)
        budget.steps.learn(decoding + prompts, ms)
        done += prompts
        if turn > warm and prompts:
            times.append(ms)
    return times, done


def test_the_limit_holds_once_steps_are_known() -> None:
    times, done = served("adaptive")
    assert max(times) <= 30
    assert done > 200_000


def test_without_a_rule_steps_exceed_the_limit() -> None:
    times, _ = served("fixed", warm=0)
    assert max(times) > 100


def test_the_rule_of_lengths() -> None:
    for length, tokens in ((10, 4096), (127, 4096), (128, 2048), (511, 2048), (512, 1024), (5000, 1024)):
        budget = Budget(most=8192, rule="lengths")
        budget.lengths.append(length)
        assert budget.tokens(4, 0, 0.0) == tokens
    assert Budget(most=512, rule="lengths").tokens(4, 0, 0.0) == 512


def test_nobody_is_held_up_when_nothing_is_generated() -> None:
    budget = Budget(most=8192, tpot_ms=10.0)
    for tokens in (100, 2000) * 10:
        budget.steps.learn(tokens, step_ms(tokens))
    assert budget.tokens(0, 5000, 0.0) == 8192
    assert budget.tokens(8, 5000, 0.0) < 2000


def test_a_limit_that_cannot_be_kept_still_lets_prompts_in() -> None:
    budget = Budget(most=8192, tpot_ms=1.0)
    for tokens in (100, 2000) * 10:
        budget.steps.learn(tokens, step_ms(tokens))
    assert budget.tokens(40, 5000, 0.0) == 40 + mopt_scheduler.LEAST


def test_prompts_that_waited_long_are_let_in_faster() -> None:
    budget = Budget(most=8192, tpot_ms=30.0)
    for tokens in (100, 2000) * 10:
        budget.steps.learn(tokens, step_ms(tokens))
    assert budget.tokens(8, 5000, 3000.0) > 1.5 * budget.tokens(8, 5000, 0.0)


def test_the_environment_names_rule_and_limit() -> None:
    found = from_environment(100, {"MOPT_SCHEDULER_RULE": "lengths", "MOPT_SCHEDULER_TPOT_MS": "25"})
    assert (found.rule, found.tpot_ms, found.most) == ("lengths", 25.0, 100)
    assert from_environment(100, {"MOPT_SCHEDULER_TPOT_MS": "soon"}).tpot_ms is None
    assert from_environment(100, {}).tokens(8, 10, 0.0) == 100


def test_it_sits_on_top_of_the_scheduler_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for vLLM's class: the budget is set before each step, and steps are learned from."""
    budgets: list[int] = []

    class Own:
        def __init__(self) -> None:
            self.max_num_scheduled_tokens = 4096
            self.running = [SimpleNamespace(num_computed_tokens=20, num_prompt_tokens=10)]
            self.waiting = [SimpleNamespace(request_id="a", num_prompt_tokens=600, arrival_time=0.0)]

        def schedule(self, throttle_prefills: bool = False) -> SimpleNamespace:
            budgets.append(self.max_num_scheduled_tokens)
            return SimpleNamespace(total_num_scheduled_tokens=100)

        def update_from_output(self, scheduler_output: SimpleNamespace, output: object) -> str:
            return "done"

    module = ModuleType("vllm.v1.core.sched.async_scheduler")
    module.AsyncScheduler = Own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.v1.core.sched.async_scheduler", module)
    monkeypatch.setenv("MOPT_SCHEDULER_RULE", "lengths")
    monkeypatch.delitem(vars(mopt_scheduler), "AdaptiveScheduler", raising=False)
    scheduler = mopt_scheduler.AdaptiveScheduler()
    output = scheduler.schedule()
    assert budgets == [1024]
    assert scheduler.update_from_output(output, None) == "done"
    assert scheduler._budget.steps.weight == 1
    monkeypatch.delitem(vars(mopt_scheduler), "AdaptiveScheduler", raising=False)

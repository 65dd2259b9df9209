"""Queueing beside two things that share nothing with the loop: Lindley's rule, and a server step by step."""

import random
from dataclasses import dataclass

import pytest

from model_optimizer.core import Lengths, Workload
from model_optimizer.core.steps import Batch
from model_optimizer.planner.service import Limits, Question, capacity, estimate
from model_optimizer.planner.service.loop import Replica, Request
from model_optimizer.planner.service.summary import spread

from .speed_cases import Clock

SHORT = Workload(prompt_tokens=Lengths.fixed(100), output_tokens=Lengths.fixed(11))


def arrivals(count: int, qps: float, seed: int = 3) -> list[Request]:
    """Poisson, with prompts and answers of any length."""
    dice, now, found = random.Random(seed), 0.0, list[Request]()
    for _ in range(count):
        now += dice.expovariate(qps) * 1e3
        found.append(Request(prompt=dice.randint(20, 600), output=dice.randint(2, 120), sent=now))
    return found


@dataclass
class Sequence:
    """A request in the plain simulation."""

    number: int
    left: int
    context: int


def step_by_step(requests: list[Request], clock: Clock, slots: int, budget: int) -> list[tuple[float, float]]:
    """(first token, last token) of each request: one step at a time, nothing skipped, no room to run out of."""
    first, last = [0.0] * len(requests), [0.0] * len(requests)
    now, coming, waiting = 0.0, list(enumerate(requests)), list[list[int]]()
    running, loading = list[Sequence](), list[list[int]]()
    while coming or waiting or running or loading:
        while coming and coming[0][1].sent <= now:
            number, request = coming.pop(0)
            waiting.append([number, request.prompt])
        if not (waiting or running or loading):
            now = coming[0][1].sent
            continue
        free, chunks, pairs = budget - len(running), list[tuple[list[int], int]](), 0.0
        while waiting and len(running) + len(loading) < slots and free > sum(left for _, left in loading):
            loading.append(waiting.pop(0))
        for entry in loading:
            count = min(entry[1], free)
            if count > 0:
                done = requests[entry[0]].prompt - entry[1]
                pairs += count * (done + count / 2)
                chunks.append((entry, count))
                free -= count
        mean = sum(s.context for s in running) / len(running) if running else 0.0
        tokens = sum(count for _, count in chunks)
        now += clock.mixed_ms(
            Batch(sequences=len(running), context=mean, tokens=tokens, chunks=len(chunks), pairs=pairs)
        )
        for sequence in running:
            sequence.left -= 1
            sequence.context += 1
            if not sequence.left:
                last[sequence.number] = now
        running = [s for s in running if s.left]
        for entry, count in chunks:
            entry[1] -= count
            if not entry[1]:
                request = requests[entry[0]]
                first[entry[0]] = last[entry[0]] = now
                if request.output > 1:
                    running.append(Sequence(entry[0], request.output - 1, request.prompt + 1))
        loading = [entry for entry in loading if entry[1]]
    return list(zip(first, last, strict=True))


@pytest.mark.parametrize("qps", [2.0, 6.0, 9.0])
def test_the_loop_says_what_a_server_does_step_by_step(qps: float) -> None:
    """Times to first token and of whole requests, median and 99th percentile, up to near saturation."""
    clock = Clock(sequence=0.2, context=0.0005)
    load = arrivals(400, qps)
    plain = step_by_step(load, clock, slots=16, budget=512)
    bounds = Limits(max_num_seqs=16, max_num_batched_tokens=512)
    done = Replica(clock, bounds, arrivals(400, qps), lambda _: None).run().requests
    assert all(request.last is not None for request in done)
    for mine, theirs in (
        (
            [r.first - r.sent for r in done if r.first],
            [f - r.sent for r, (f, _) in zip(load, plain, strict=True)],
        ),
        (
            [r.last - r.sent for r in done if r.last],
            [e - r.sent for r, (_, e) in zip(load, plain, strict=True)],
        ),
    ):
        said, true = spread(mine), spread(theirs)
        assert said.p50 == pytest.approx(true.p50, rel=0.03)
        assert said.mean == pytest.approx(true.mean, rel=0.02)
        assert said.p99 == pytest.approx(true.p99, rel=0.05)


def test_one_slot_waits_by_lindleys_rule() -> None:
    """A single server: each request waits for what was left of the wait and the work of the one before."""
    load = [Request(prompt=100, output=11, sent=r.sent) for r in arrivals(800, 6.5)]
    done = Replica(Clock(), Limits(max_num_seqs=1), load, lambda _: None).run().requests
    work, free, waits = 120.0, 0.0, list[float]()
    for request in done:
        begin = max(request.sent, free)
        waits.append(begin - request.sent)
        free = begin + work
    said, true = spread([(r.first or 0.0) - r.sent - 20 for r in done]), spread(waits)
    assert said.mean == pytest.approx(true.mean, rel=0.03)
    assert said.p99 == pytest.approx(true.p99, rel=0.03)


def test_a_single_server_with_equal_work_waits_as_the_formula_says() -> None:
    """M/D/1: the mean wait is load x work / (2 (1 - load))."""
    question = Question(
        steps=Clock(),
        limits=Limits(max_num_seqs=1),
        workload=Workload(
            prompt_tokens=Lengths.fixed(100),
            output_tokens=Lengths.fixed(11),
            arrivals="poisson",
            qps=5.0,
            requests=6000,
        ),
    )
    found = estimate(question)
    load = 5.0 * 0.12
    assert found.ttft_ms.mean == pytest.approx(20 + load * 120 / (2 * (1 - load)), rel=0.1)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9, 0.96, 1.0, 1.2, 3.0])
def test_no_number_is_beyond_what_can_be_done(load: float) -> None:
    """Whatever is asked, rates stay at or below the capacity, and a saturated server names no wait."""
    bounds = Limits(max_num_seqs=8)
    most, _ = capacity(Question(steps=Clock(), limits=bounds, workload=SHORT))
    asked = Workload(
        prompt_tokens=SHORT.prompt_tokens,
        output_tokens=SHORT.output_tokens,
        arrivals="poisson",
        qps=load * most.requests_per_s,
    )
    found = estimate(Question(steps=Clock(), limits=bounds, workload=asked))
    assert found.requests_per_s is not None
    assert found.requests_per_s <= most.requests_per_s * 1.000001
    assert found.saturated is (load >= 0.97)
    assert (found.ttft_ms.p99 is None) is bool(found.saturated)

"""Continuous batching on a clock that anyone can work out, and what must hold under any load."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core import Lengths, Workload
from model_optimizer.planner.service import Limits, loads
from model_optimizer.planner.service.loop import Outcome, Replica, Request
from model_optimizer.planner.service.summary import spread, summarize

from .speed_cases import Clock


def run(requests: list[Request], clock: Clock | None = None, **limits: int | None) -> Outcome:
    bounds = Limits(**limits)  # pyright: ignore[reportArgumentType]
    return Replica(clock or Clock(), bounds, requests, lambda _: None).run()


def request(prompt: int = 100, output: int = 11, sent: float = 0.0) -> Request:
    return Request(prompt=prompt, output=output, sent=sent)


def test_one_request_is_a_prompt_and_its_steps() -> None:
    (one,) = run([request()]).requests
    assert one.first == pytest.approx(10 + 0.1 * 100)
    assert one.last == pytest.approx(20 + 10 * 10)


def test_the_front_end_passes_before_the_engine_sees_a_request() -> None:
    bounds = Limits(frontend_ms=5, frontend_token_us=10)
    (one,) = Replica(Clock(), bounds, [request()], lambda _: None).run().requests
    assert one.first == pytest.approx(5 + 1 + 20)


def test_prompts_that_arrive_together_share_a_step() -> None:
    found = run([request(), request()]).requests
    assert [r.first for r in found] == pytest.approx([30, 30])


def test_a_step_takes_no_more_tokens_than_its_budget() -> None:
    clock = Clock()
    run([request(prompt=1000), request(prompt=500), request(prompt=700)], clock, max_num_batched_tokens=512)
    assert max(b.tokens + b.sequences for b in clock.asked) <= 512
    assert sum(b.tokens for b in clock.asked) == 2200


def test_pairs_of_a_chunked_prompt_are_those_of_the_whole() -> None:
    clock = Clock()
    run([request(prompt=1000, output=1)], clock, max_num_batched_tokens=300)
    assert sum(b.pairs for b in clock.asked) == pytest.approx(1000**2 / 2)


def test_running_sequences_come_before_new_prompts() -> None:
    """The second request's prompt shares steps with the first one's tokens, and slows them."""
    first, second = run([request(output=21), request(prompt=400, sent=55.0)]).requests
    assert second.first == pytest.approx(60 + 10 + 0.1 * 400)
    assert first.last == pytest.approx(20 + 20 * 10 + 0.1 * 400)


def test_slots_hold_prompts_back() -> None:
    found = run([request() for _ in range(3)], max_num_seqs=2)
    firsts = sorted(r.first or 0 for r in found.requests)
    assert firsts[2] > firsts[1] + 90
    assert found.slots_ms > 0


def test_a_prompt_waits_until_all_of_it_fits_into_the_cache() -> None:
    found = run([request(prompt=600), request(prompt=600)], kv_cache_tokens=1000)
    first, second = found.requests
    assert (second.first or 0) > (first.last or 0)
    assert found.full_ms > 0 and found.preemptions == 0


def test_before_whole_prompts_were_asked_for_a_first_chunk_was_enough() -> None:
    """The second prompt fills what room is left, in steps that slow the first one's tokens."""
    both = [request(prompt=600, output=101), request(prompt=600, output=101)]
    found = run(both, kv_cache_tokens=1000, max_num_batched_tokens=256, whole_prompts=False)
    first, second = found.requests
    assert (second.first or 0) > (first.last or 0), "the rest of it still waits for room"
    alone = run([request(prompt=600, output=101)], max_num_batched_tokens=256).requests[0]
    assert (first.last or 0) > (alone.last or 0) + 0.1 * 256
    late = run([request(prompt=600, output=101) for _ in range(2)], kv_cache_tokens=1000).requests[1]
    assert (second.first or 0) - (first.last or 0) < (late.first or 0) - (late.sent or 0), "part is done"
    assert found.preemptions == 0 and not found.unfinished


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=12),
    st.integers(1000, 3000),
    st.integers(32, 512),
)
@settings(max_examples=60, deadline=None)
def test_first_chunks_alone_end_too_and_never_overfill_the_cache(
    sizes: list[tuple[int, int]], room: int, budget: int
) -> None:
    class Watched(Replica):
        def _schedule(self):  # type: ignore[no-untyped-def]
            assert self._used() <= room
            return super()._schedule()

    bounds = Limits(kv_cache_tokens=room, max_num_batched_tokens=budget, whole_prompts=False)
    requests = [request(prompt=p, output=o) for p, o in sizes]
    found = Watched(Clock(), bounds, requests, lambda _: None).run()
    assert not found.unfinished


def test_when_the_cache_is_full_the_last_one_begins_again() -> None:
    found = run([request(output=201), request(output=201)], kv_cache_tokens=300)
    assert found.preemptions >= 1
    first, second = found.requests
    assert first.restarts == 0 and second.restarts >= 1
    assert (second.last or 0) > (first.last or 0)
    assert not found.unfinished


def test_what_is_larger_than_the_cache_never_runs() -> None:
    found = run([request(prompt=900), request()], kv_cache_tokens=500)
    assert found.unfinished == 1
    assert found.requests[1].last is not None


def test_a_cached_prefix_is_not_computed_but_read() -> None:
    clock = Clock()
    run([request(prompt=1000)], clock, cached_tokens=800)
    assert sum(b.tokens for b in clock.asked) == 200
    assert clock.asked[0].pairs == pytest.approx(200 * (800 + 100))
    assert clock.asked[1].context >= 1000


def test_without_chunks_a_prompt_is_one_step() -> None:
    clock = Clock()
    bounds = Limits(max_num_batched_tokens=300, chunked=False)
    Replica(clock, bounds, [request(prompt=1000)], lambda _: None).run()
    assert [b.tokens for b in clock.asked if b.tokens] == [1000]


def test_many_equal_steps_are_taken_at_once_and_cost_the_same() -> None:
    clock = Clock(context=0.01)
    (one,) = run([request(prompt=100, output=1001)], clock).requests
    exact = sum(10 + 0.01 * (101 + n) for n in range(1000))
    assert (one.last or 0) - (one.first or 0) == pytest.approx(exact, rel=1e-3)
    assert len(clock.asked) < 200


LENGTHS = st.tuples(st.integers(1, 800), st.integers(1, 120), st.floats(0, 500))


@settings(deadline=None)
@given(
    st.lists(LENGTHS, min_size=1, max_size=40),
    st.integers(1, 20),
    st.integers(64, 2048),
    st.integers(1000, 4000),
)
def test_every_request_ends_and_nothing_is_computed_too_often(
    lengths: list[tuple[int, int, float]], slots: int, budget: int, room: int
) -> None:
    clock = Clock(sequence=0.5)
    requests = [request(prompt, output, sent) for prompt, output, sent in lengths]
    found = run(requests, clock, max_num_seqs=slots, max_num_batched_tokens=budget, kv_cache_tokens=room)
    assert found.unfinished == 0
    assert max(b.sequences for b in clock.asked) <= slots
    for one in found.requests:
        assert one.sent <= (one.first or 0) <= (one.last or 0)
    computed = sum(b.tokens for b in clock.asked)
    assert computed >= sum(prompt for prompt, _, _ in lengths)
    wanted = sum(prompt for prompt, _, _ in lengths) + found.given_back
    assert (found.preemptions > 0) or computed == wanted


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    work = Workload(prompt_tokens=Lengths.fixed(100), output_tokens=Lengths.fixed(11), requests=40)
    load = loads.closed(work, 4)
    clock = Clock()
    outcome = Replica(clock, Limits(), load.requests, load.follow).run()
    assert len(outcome.requests) == 40
    assert max(b.sequences + b.chunks for b in clock.asked) == 4
    numbers = summarize(outcome, load)
    assert numbers.requests_per_s == pytest.approx(40 / outcome.ms * 1e3)
    assert numbers.output_tokens_per_s == pytest.approx(11 * numbers.requests_per_s)


def test_the_steady_state_leaves_out_filling_and_draining() -> None:
    work = Workload(prompt_tokens=Lengths.fixed(100), output_tokens=Lengths.fixed(101))
    load = loads.closed(work, 16)
    outcome = Replica(Clock(), Limits(), load.requests, load.follow).run()
    whole = summarize(outcome, loads.Load(requests=load.requests, follow=load.follow, whole=True))
    steady = summarize(outcome, load)
    assert steady.requests_per_s == pytest.approx(whole.requests_per_s, rel=0.1)
    cycle = 101 * 10 + 16 * 100 * 0.1
    assert steady.requests_per_s == pytest.approx(16 / cycle * 1e3, rel=0.05)


def test_arrivals_come_at_the_rate_that_was_asked() -> None:
    for arrivals in ("poisson", "constant", "gamma"):
        work = Workload(arrivals=arrivals, burstiness=2.0)  # pyright: ignore[reportArgumentType]
        load = loads.opened(work, 20.0, 4000)
        gaps = load.requests[-1].sent / 4000
        assert gaps == pytest.approx(50, rel=0.06)


def test_equal_questions_have_equal_answers() -> None:
    work = Workload(arrivals="poisson", prompt_tokens=Lengths(kind="lognormal", numbers=(100, 900)))
    one, other = loads.opened(work, 5, 100), loads.opened(work, 5, 100)
    assert [(r.sent, r.prompt, r.output) for r in one.requests] == [
        (r.sent, r.prompt, r.output) for r in other.requests
    ]


def test_percentiles_are_by_nearest_rank() -> None:
    found = spread([float(n) for n in range(1, 101)])
    assert (found.p50, found.p99, found.mean) == (50, 99, 50.5)
    assert spread([]).p50 is None


def test_prompts_in_steps_of_their_own_stop_the_tokens_of_others() -> None:
    """SGLang's way: the second request's prompt takes a step in which nobody gets a token."""
    first, second = run([request(output=21), request(prompt=400, sent=55.0)], mixed=False).requests
    assert second.first == pytest.approx(60 + 10 + 0.1 * 400)
    assert first.last == pytest.approx(20 + 20 * 10 + 10 + 0.1 * 400)


def test_room_that_is_kept_for_answers_is_never_taken_back() -> None:
    """With all room reserved nothing starts again, and fewer run at once."""
    load = [request(output=101) for _ in range(6)]
    taken = run(load, kv_cache_tokens=500)
    kept = run([request(output=101) for _ in range(6)], kv_cache_tokens=500, reserve=1)
    assert taken.preemptions > 0
    assert kept.preemptions == 0
    assert kept.unfinished == 0
    assert kept.sequence_steps / kept.steps < taken.sequence_steps / taken.steps


def test_a_prompt_that_is_alone_starts_whatever_is_reserved() -> None:
    assert run([request(output=101)], kv_cache_tokens=150, reserve=1).unfinished == 0


def test_new_requests_wait_until_the_engine_looks() -> None:
    """Looked for every ten steps: the second one waits for the tenth."""
    first, second = run([request(output=51), request(sent=25.0)], poll_steps=10).requests
    assert second.first == pytest.approx(20 + 9 * 10 + 10 + 0.1 * 100)
    assert run([request(output=51), request(sent=25.0)]).requests[1].first == pytest.approx(30 + 20)
    assert first.last is not None


def test_a_step_that_is_decided_ahead_costs_a_new_request_one_more() -> None:
    late = run([request(output=51), request(sent=25.0)], ahead=True).requests[1]
    assert late.first == pytest.approx(40 + 20)
    alone = run([request(sent=25.0)], ahead=True).requests[0]
    assert alone.first == pytest.approx(25 + 20)

"""The layer `service`: does a server answer many at once as it answers one, fairly, in time, for long?

What was asked and answered becomes comparisons here; asking is the caller's work.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from model_optimizer.core import Comparison, LoadPoint, Slo, Verdict
from model_optimizer.core.verdict import worst

from .judged import Judged, more_texts, outcome, reported
from .service_seen import Feature, Resting, Said, Seen, limit
from .service_texts import texts, token_counts
from .service_vectors import vectors

STARVED = 10.0
"""Times the median from which one answer among equal ones took too long."""

DRIFTED, SLOWER, LEAST_HALF = 1.5, 0.9, 12
"""Time per token of the last answers over the first ones, and the share of pairs that are slower, from which
it is drift; and how many answers each needs. ASSUMED: a busy neighbour alone was not seen to do both."""

NEVER_STARVED_S = 1.0
"""What nobody calls starved, however quick the others were."""


def verify_service(seen: Seen, slo: Slo) -> Verdict:
    """Every comparison of a service; see the functions below for what each one asks."""
    found = (
        _errors(seen, slo),
        *_answers(seen),
        _starved(seen),
        *_drift(seen),
        *(_load(seen.point, slo) if seen.point else ()),
        *(_feature(f) for f in seen.features if f.asked and not f.missing),
        *_rest(seen.resting),
    )
    result = worst(tuple(j.comparison.outcome for j in found)) if found else outcome(found)
    bad = [_why(j.comparison) for j in found if j.comparison.outcome == result != "pass"]
    said = "; ".join(bad) or "answers at once equal answers alone, and the load was held"
    missing = [f"{f.name}: nothing was seen ({f.missing})" for f in seen.features if f.missing]
    return Verdict(
        layer="service",
        subject=seen.url,
        outcome=result,
        comparisons=tuple(j.comparison for j in found),
        because="; ".join([said, *missing]),
        more_samples=more_texts(found) if result == "undecided" else None,
    )


def _why(bad: Comparison) -> str:
    return f"{bad.metric}: {bad.because or bad.where}"


def _errors(seen: Seen, slo: Slo) -> Judged:
    """Requests that failed, of all that were sent."""
    said = (*seen.alone, *seen.together, *seen.again, *seen.listed)
    bad = [s for s in said if s.error]
    total, failed = len(said), len(bad)
    kinds = bad[0].error if bad else None
    if seen.broke:
        return limit(
            "error_rate", 1.0, f"<= {slo.error_rate:g}", False, where="no request of the load was answered",
            because=f"the load: {seen.broke}",
        )  # fmt: skip
    if seen.point:
        total += seen.point.completed + seen.point.failed
        failed += seen.point.failed
        kinds = kinds or ", ".join(f"{n} {kind}" for kind, n in seen.point.errors.items())
    return limit(
        "error_rate", failed / max(1, total), f"<= {slo.error_rate:g}", failed <= slo.error_rate * total,
        where=f"{failed} of {total} requests failed", samples=total, because=kinds or None,
    )  # fmt: skip


def _answers(seen: Seen) -> tuple[Judged, ...]:
    """What was answered under load beside what was answered alone."""
    alone = {s.prompt: s for s in seen.alone if not s.error}
    asked = (*seen.together, *seen.listed)
    pairs = [(alone[s.prompt], s) for s in asked if not s.error and s.prompt in alone]
    if any(said.vector for said in alone.values()):
        found = vectors(pairs, alone, seen.concurrency, seen.told)
    else:
        found = texts(seen, pairs, alone)
    return (*found, *token_counts(seen, alone))


def starves(together: Sequence[Said], concurrency: int) -> bool:
    """Whether an answer waited while others were served."""
    return _slowest(together, concurrency)[2]


def _starved(seen: Seen) -> Judged:
    """The slowest answer under load beside the median, since all ask as much; it fails where a second look
    agrees: a lost packet or other work on the machine may hold up one answer once.
    """
    ratio, slowest, late = _slowest(seen.together, seen.concurrency)
    usual = median(s.seconds for s in seen.together) if seen.together else 0.0
    where = f"the slowest answer took {slowest:.3g} s, half of them {usual:.3g} s"
    if late and seen.again:
        _ratio, then, late = _slowest(seen.again, seen.concurrency)
        where += f"; asked once more the slowest took {then:.3g} s"
    return limit(
        "starvation", ratio, f"<= {STARVED:g}", not late, samples=len(seen.together), where=where,
        because="one request waited while others were served",
    )  # fmt: skip


def _slowest(together: Sequence[Said], concurrency: int) -> tuple[float, float, bool]:
    """Times the usual answer, seconds of the slowest, and whether that is starvation.

    The first ones that run beside each other may all be slow, since a server warms up then: they are held
    against each other.
    """
    times = [s.seconds for s in together]
    usual = median(times) if times else 0.0
    begin = times[:concurrency]
    at_first = max(usual, median(begin)) if begin else 0.0
    slow = [(t / at_first, t) for t in begin if at_first] + [
        (t / usual, t) for t in times[len(begin) :] if usual
    ]
    late = [(ratio, t) for ratio, t in slow if t > NEVER_STARVED_S]
    ratio, slowest = max(late or slow, default=(1.0, 0.0))
    return ratio, slowest, bool(late) and ratio > STARVED


def slows_down(together: Sequence[Said], concurrency: int) -> bool:
    """Whether the later answers took plainly longer a piece than the earlier ones."""
    early, late = _ends(together, concurrency)
    return len(early) >= LEAST_HALF and _slower(early, late)[2]


def _drift(seen: Seen) -> tuple[Judged, ...]:
    """Time per piece of the later answers beside the earlier ones; it fails where a second look agrees.

    Work of others on the machine slows a server down for a while; what grows with the server's age stays. It
    is undecided where the machine was as much slower without the server.
    """
    early, late = _ends(seen.together, seen.concurrency)
    if len(early) < LEAST_HALF:
        return ()
    ratio, share, drifts = _slower(early, late)
    where = f"{share:.0%} of later answers beside earlier ones are slower"
    if drifts and seen.again:
        then, _share, drifts = _slower(early, _times(seen.again))
        where += f"; asked once more they take {then:.2f} times the first ones' time"
        ratio = min(ratio, then)
    found = limit(
        "token_time_drift", ratio, f"<= {DRIFTED:g}", not drifts, samples=len(early) + len(late), where=where,
        because="each token takes longer the longer the server runs",
    )  # fmt: skip
    if not drifts or ratio > DRIFTED * max(1.0, seen.machine_slower):
        return (found,)
    because = f"this machine itself took {seen.machine_slower:.1f} times as long for the same work then"
    return (Judged(comparison=replace(found.comparison, outcome="undecided", because=because)),)


def _times(answers: Sequence[Said]) -> list[float]:
    """Seconds a piece of each answer, or of a whole vector."""
    return [s.seconds / max(1, len(s.pieces)) for s in answers if (s.pieces or s.vector) and not s.error]


def _ends(together: Sequence[Said], concurrency: int) -> tuple[list[float], list[float]]:
    """The first and the last quarter, or more where that is too few; without the first ones that run beside
    each other, of which some are served alone, where others are enough."""
    times = _times(together)
    if len(times) >= 2 * LEAST_HALF + concurrency:
        times = times[concurrency:]
    size = max(len(times) // 4, min(len(times) // 2, LEAST_HALF))
    return times[:size], times[len(times) - size :]


def _slower(early: Sequence[float], late: Sequence[float]) -> tuple[float, float, bool]:
    """The ratio of medians, the share of pairs with the later one slower, and whether that is plain."""
    if not late:
        return 1.0, 0.0, False
    ratio = median(late) / max(1e-9, median(early))
    share = sum(b > a for a in early for b in late) / (len(early) * len(late))
    return ratio, share, ratio > DRIFTED and share >= SLOWER


def _feature(found: Feature) -> Judged:
    metric = {
        "tool calls": "tool_calls",
        "chosen tool calls": "chosen_tool_calls",
        "JSON schema": "json_schema",
        "reasoning": "reasoning_split",
    }
    good = found.asked - len(found.wrong)
    return limit(
        metric[found.name], good / found.asked, "= 1", not found.wrong, samples=found.asked,
        where=f"{good} of {found.asked} answers keep it", because=found.wrong[0] if found.wrong else None,
    )  # fmt: skip


def _load(point: LoadPoint, slo: Slo) -> tuple[Judged, ...]:
    """The load's percentiles beside the limits, and whether latency rose: one that warms up falls."""
    found: list[Judged] = []
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        numbers, wanted = getattr(point, name), getattr(slo, name)
        high = numbers.p99 if slo.percentile >= 99 else (numbers.p90 if slo.percentile >= 90 else numbers.p50)
        where = f"P50 {_ms(numbers.p50)}, P99 {_ms(numbers.p99)}, {point.target}"
        if wanted is None:
            if numbers.p50 is not None:
                found.append(reported(name, numbers.p50, samples=point.completed, where=where))
            continue
        found.append(
            limit(
                name, high, f"<= {wanted:g}", high is not None and high <= wanted, samples=point.completed,
                where=where, because=f"P{slo.percentile:g} is {_ms(high)}, {wanted:g} ms is the limit",
            )
        )  # fmt: skip
    if point.steady is not None:
        found.append(
            limit(
                "steady", point.drift, "no rise", not point.rises, samples=point.completed,
                where=point.steady_because or "second half of the load beside the first",
                because=f"latency rose by {point.drift or 0:.0%} within the load",
            )
        )  # fmt: skip
    return tuple(found)


def _rest(resting: Resting) -> tuple[Judged, ...]:
    """What is still held when nothing runs any more."""
    found: list[Judged] = []
    if resting.running is not None:
        found.append(
            limit(
                "left_running", resting.running, "= 0", resting.running == 0,
                where="requests that the engine still runs after the load", because="requests never end",
            )
        )  # fmt: skip
    if resting.kv_before is not None and resting.kv_after is not None:
        grown = resting.kv_after - resting.kv_before
        found.append(
            limit(
                "kv_held", resting.kv_after, f"<= {resting.kv_before + 0.01:.3g}", grown <= 0.01,
                where="share of the KV cache in use when nothing runs",
                because=f"it was {resting.kv_before:.1%} before the load",
            )
        )  # fmt: skip
    return tuple(found)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g} ms"

"""From the outcomes of one level to its load point. The definitions of all numbers are here."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.core import LoadPoint, Percentiles, Slo
from model_optimizer.core.measurement import Part

from .exchange import Outcome
from .health import health, worst
from .latency import e2e_ms, gaps_ms, meets, tpot_ms, ttft_ms
from .level import Driven
from .percentiles import percentiles
from .sampler import Sampled
from .vllm_block import vllm_bench
from .window import Window, share_inside, window

_LEAST_TO_JUDGE = 20

DEFINITIONS: Mapping[str, str] = {
    "clock": "perf_counter_ns of the client; a time is taken when bytes are received",
    "start": "when the arrival process wanted the request in an open loop, when it was sent in a closed one",
    "ttft_ms": "first stream event with content - start; none without streaming",
    "tpot_ms": "(last token - first token) / (tokens - 1), for each request with two tokens or more",
    "itl_ms": "gaps between tokens, of all completed requests together; without interval, for gaps of a "
    "request are not independent",
    "e2e_ms": "last token - start; without streaming, last byte of the answer - start",
    "percentiles": "the smallest value that at least this share of all requests stays at or below; a failed "
    "request ranks above all others; p50_ci and p99_ci are 95 % intervals between order statistics",
    "mean": "over completed requests",
    "rates": "what was done in the window / window_s: tokens by when they arrived; requests by their end, "
    "in a closed loop by the share of their time that lies in the window, since equal answers end in waves",
    "goodput": "the rate of requests that met every limit of the SLO",
    "window": "leaves out warm-up and drain where the run is long enough, and at the beginning, by the "
    "marginal standard error rule, requests whose latency plainly differs; each point says which it was",
    "vllm_bench": "the same requests under the definitions of `vllm bench serve`: from sent, first event of "
    "a stream whether it holds text or not, interpolated percentiles of completed requests, rates from "
    "first request to last answer",
}


Shares = Sequence[tuple[Outcome, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a point is judged by, beside what was driven. `exact` prompts have the wanted length."""

    slo: Slo
    generates: bool
    sampled: Sampled
    ceiling_requests_per_s: float | None = None
    notes: tuple[str, ...] = ()


def load_point(driven: Driven | Sequence[Driven], judged: Judged) -> LoadPoint:
    """Everything that one level says; several runs of it count together."""
    runs = [driven] if isinstance(driven, Driven) else list(driven)
    last, generates = runs[-1], judged.generates
    spans = [window(run) for run in runs]
    pairs = list(zip(runs, spans, strict=True))
    seconds = sum(span.seconds for span in spans)
    began = [o for run, span in pairs for o in run.outcomes if span.counts(o)]
    done = sorted((o for o in began if o.completed), key=lambda o: o.scheduled_ns)
    failed = len(began) - len(done)
    each = [_shares(run, span) for run, span in pairs]
    shares = [counted for counts in each for counted in counts]
    is_open = last.level.arrivals != "closed"
    scheduled, sent = (_latencies(done, failed, generates, s) for s in (True, False))
    headline = scheduled if is_open else sent
    good = sum(share for o, share in shares if meets(o, judged.slo, scheduled=is_open))
    met = sum(meets(o, judged.slo, scheduled=is_open) for o in began)
    steadiness = spans[-1].steadiness
    return LoadPoint(
        target=last.level.title,
        concurrency=last.level.concurrency,
        qps=last.level.qps if last.level.qps != math.inf else None,
        completed=len(done),
        failed=failed,
        errors=dict(Counter(o.error for o in began if o.error)),
        error_examples={o.error: o.detail or "" for o in reversed(began) if o.error},
        window_s=seconds,
        window=spans[-1].rule if len(runs) == 1 else f"{len(runs)} runs, the last {spans[-1].rule}",
        requests_per_s=_rate(_requests(shares), seconds),
        input_tokens_per_s=_input_rate(shares, seconds),
        output_tokens_per_s=_output_rate(pairs, seconds) if generates else None,
        goodput_requests_per_s=_rate(good, seconds),
        attainment=met / len(began) if began else None,
        met=met,
        start="scheduled" if is_open else "sent",
        ttft_ms=headline.ttft,
        tpot_ms=_tpot(done, failed, generates),
        itl_ms=_itl(done, generates),
        e2e_ms=headline.e2e,
        ttft_from_scheduled_ms=scheduled.ttft,
        ttft_from_sent_ms=sent.ttft,
        e2e_from_scheduled_ms=scheduled.e2e,
        e2e_from_sent_ms=sent.e2e,
        tokens_counted_by=_counted_by(done, generates),
        prompt_tokens_mean=_mean([o.prompt_tokens for o in done]),
        prompt_tokens_drift=_drift(done),
        output_tokens_mean=_mean([o.tokens for o in done]) if generates else None,
        tokens_per_chunk=_tokens_per_chunk(done),
        energy_j=_energy(judged.sampled, spans),
        energy_source=judged.sampled.energy_source,
        memory_bytes=judged.sampled.peak_bytes(spans[0].begin_ns, spans[-1].end_ns),
        memory_source=judged.sampled.memory_source,
        client=worst(
            tuple(
                health(run, headline, _rate(_requests(counts), span.seconds), judged.ceiling_requests_per_s)
                for (run, span), counts in zip(pairs, each, strict=True)
            )
        ),
        vllm_bench=vllm_bench(last.outcomes, judged.slo, generates=generates),
        notes=(*judged.notes, *_notes(last, done)),
        interrupted=any(run.interrupted for run in runs),
        aborted=any(run.aborted for run in runs),
        steady=steadiness.steady,
        steady_because=steadiness.because,
        drift=steadiness.drift,
        parts=_parts(began, generates, is_open=is_open),
        runs=len(runs),
    )


def _shares(run: Driven, span: Window) -> Shares:
    """The requests that rates count, each with its share."""
    shares = ((o, share_inside(o, run, span)) for o in run.outcomes if o.completed)
    return [(o, share) for o, share in shares if share > 0]


def _requests(shares: Shares) -> float:
    return sum(share for _, share in shares)


def _energy(sampled: Sampled, spans: Sequence[Window]) -> float | None:
    each = [sampled.energy_j(span.begin_ns, span.end_ns) for span in spans]
    known = [joules for joules in each if joules is not None]
    return sum(known) if len(known) == len(each) else None


def _parts(began: Sequence[Outcome], generates: bool, *, is_open: bool) -> tuple[Part, ...]:
    """The models of a mix, one by one."""
    parts: list[Part] = []
    for name in sorted({o.label for o in began if o.label is not None}):
        own = [o for o in began if o.label == name]
        done = [o for o in own if o.completed]
        times = _latencies(done, len(own) - len(done), generates, is_open)
        failed = len(own) - len(done)
        parts.append(
            Part(name=name, completed=len(done), failed=failed, ttft_ms=times.ttft, e2e_ms=times.e2e)
        )
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Time to first token and of the whole request, from the same start."""

    ttft: Percentiles
    e2e: Percentiles


def _latencies(done: Sequence[Outcome], failed: int, generates: bool, scheduled: bool) -> Latencies:
    first = [t for o in done if (t := ttft_ms(o, scheduled=scheduled)) is not None]
    whole = [e2e_ms(o, scheduled=scheduled) for o in done]
    return Latencies(ttft=_first(first, failed, done, generates), e2e=percentiles(whole, failed))


def _first(values: Sequence[float], failed: int, done: Sequence[Outcome], generates: bool) -> Percentiles:
    if not generates:
        return Percentiles(because="this interface makes no tokens")
    if done and not values:
        return Percentiles(because="the answers were not streamed")
    return percentiles(values, failed)


def _tpot(done: Sequence[Outcome], failed: int, generates: bool) -> Percentiles:
    if not generates:
        return Percentiles(because="this interface makes no tokens")
    values = [t for o in done if (t := tpot_ms(o)) is not None]
    if done and not values:
        return Percentiles(because="no streamed answer had two tokens")
    return percentiles(values, failed)


def _itl(done: Sequence[Outcome], generates: bool) -> Percentiles:
    if not generates:
        return Percentiles(because="this interface makes no tokens")
    return percentiles([gap for o in done for gap in gaps_ms(o)], independent=False)


def _rate(count: float, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None


def _input_rate(shares: Shares, seconds: float) -> float | None:
    if not shares or any(o.prompt_tokens is None for o, _ in shares):
        return None
    return _rate(sum((o.prompt_tokens or 0) * share for o, share in shares), seconds)


def _output_rate(pairs: Sequence[tuple[Driven, Window]], seconds: float) -> float | None:
    """Tokens received in the window; those of a stream are spread evenly over its events.

    Where no event tells when, the request's own share counts.
    """
    total = 0.0
    for run, span in pairs:
        for outcome in run.outcomes:
            if not outcome.completed or (span.whole and not outcome.measured):
                continue
            if outcome.tokens is None:
                return None
            times = outcome.token_ns
            share = sum(map(span.holds, times)) / len(times) if times else share_inside(outcome, run, span)
            total += outcome.tokens * share
    return _rate(total, seconds)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _drift(done: Sequence[Outcome]) -> float | None:
    """How much longer (above 0) or shorter prompts were than wanted, by the server's count."""
    pairs = [(o.prompt_tokens, o.wanted_prompt_tokens) for o in done]
    known = [(got, wanted) for got, wanted in pairs if got is not None and wanted]
    return sum(got for got, _ in known) / sum(wanted for _, wanted in known) - 1 if known else None


def _counted_by(done: Sequence[Outcome], generates: bool) -> str | None:
    if not done:
        return None
    if not generates:
        return "server usage" if all(o.prompt_tokens is not None for o in done) else None
    if all(o.output_tokens is not None for o in done):
        return "server usage"
    if any(o.output_tokens is not None for o in done):
        return "server usage, and stream events where it was missing"
    if all(o.event_tokens for o in done):
        return "token ids in the stream"
    return "stream events (the server reported no usage)" if any(o.streamed for o in done) else None


def _tokens_per_chunk(done: Sequence[Outcome]) -> float | None:
    streamed = [o for o in done if o.token_ns and o.output_tokens]
    events = sum(len(o.token_ns) for o in streamed)
    return sum(o.output_tokens or 0 for o in streamed) / events if events else None


def _notes(driven: Driven, done: Sequence[Outcome]) -> list[str]:
    notes = [driven.stopped] if driven.stopped else []
    if fell_behind := _fell_behind(driven):
        notes.append(fell_behind)
    if driven.given_up:
        notes.append(f"interrupted: {driven.given_up} requests were under way and count nowhere")
    if invalid := sum(o.usage_invalid for o in done):
        notes.append(f"{invalid} answers reported less than one token, which is not believed")
    if over := sum(o.output_tokens is not None and len(o.token_ns) > o.output_tokens for o in done):
        notes.append(f"{over} streams held more events with content than the tokens the server reported")
    if differing := sum(_disagree(o) for o in done):
        notes.append(f"{differing} streams held another number of token ids than the server reported")
    short = [o for o in done if o.wanted_output_tokens and o.tokens is not None]
    if missed := sum(o.tokens != o.wanted_output_tokens for o in short):
        notes.append(f"{missed} of {len(short)} answers had another length than asked for")
    if any(not o.streamed for o in done) and any(o.streamed for o in done):
        notes.append("some answers were streamed and some were not")
    return notes


def _fell_behind(driven: Driven) -> str | None:
    """An open loop asks on while the server does not follow: then latencies are those of a growing queue, and
    would be higher still in a longer run."""
    level = driven.level
    if level.arrivals in ("closed", "burst", "trace") or driven.aborted or driven.interrupted:
        return None
    measured = [o for o in driven.outcomes if o.measured]
    left = sum(o.finished_ns > driven.closed_ns for o in measured)
    if len(measured) < _LEAST_TO_JUDGE or left < len(measured) / 4:
        return None
    waited = (driven.ended_ns - driven.closed_ns) / 1e9
    if waited < (driven.closed_ns - driven.opened_ns) / 1e9 / 4:
        return None
    return (
        f"the server did not keep up: when the load ended, {left} of {len(measured)} requests were still "
        f"unanswered, and the last answer came {waited:.1f} s later; a longer run would show longer times"
    )


def _disagree(outcome: Outcome) -> bool:
    counted = sum(outcome.event_tokens) if outcome.event_tokens else None
    return None not in (counted, outcome.output_tokens) and counted != outcome.output_tokens

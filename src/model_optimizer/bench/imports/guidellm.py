"""GuideLLM's `benchmarks.json`: a report with one benchmark for each rate or concurrency.

Its times begin when a request is sent and are over successful requests; request latency is in seconds. Its
`time_per_output_token_ms` divides the whole request by all tokens, its `inter_token_latency_ms` what comes
after the first token by the tokens after it, for each request: the latter is our TPOT, the former has no
counterpart. Read from GuideLLM's benchmark schemas, releases 0.2 to 0.7.
"""

from typing import cast

import msgspec

from model_optimizer.core import Lengths, LoadPoint, Measurement, Percentiles, Workload
from model_optimizer.core.workload import Arrivals

from . import Document

TITLE = "GuideLLM (`benchmarks.json`)"


class Ranks(msgspec.Struct):
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Summary(msgspec.Struct):
    mean: float | None = None
    median: float | None = None
    std_dev: float | None = None
    count: int | None = None
    percentiles: Ranks = msgspec.field(default_factory=Ranks)


class ByStatus(msgspec.Struct):
    successful: Summary | None = None


class Totals(msgspec.Struct):
    successful: int = 0
    errored: int = 0
    incomplete: int = 0


class Metrics(msgspec.Struct):
    requests_per_second: ByStatus | None = None
    request_latency: ByStatus | None = None
    request_totals: Totals | None = None
    prompt_token_count: ByStatus | None = None
    output_token_count: ByStatus | None = None
    time_to_first_token_ms: ByStatus | None = None
    inter_token_latency_ms: ByStatus | None = None
    output_tokens_per_second: ByStatus | None = None


class Strategy(msgspec.Struct):
    type_: str | None = None
    streams: int | None = None
    rate: float | None = None
    max_concurrency: int | None = None


class Config(msgspec.Struct):
    strategy: Strategy | None = None


class Scheduler(msgspec.Struct):
    strategy: Strategy | None = None
    requests_made: Totals | None = None


class Benchmark(msgspec.Struct):
    metrics: Metrics
    duration: float | None = None
    config: Config | None = None
    args: Config | None = None
    scheduler: Scheduler | None = None
    scheduler_metrics: Scheduler | None = None
    request_totals: Totals | None = None


class Report(msgspec.Struct):
    benchmarks: list[Benchmark]


def recognises(document: Document) -> bool:
    rows = document.get("benchmarks")
    first = cast("list[object]", rows)[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and "metrics" in first


def read(document: Document, name: str) -> Measurement:
    """A point for each benchmark. ValidationError when a field has another type than GuideLLM writes."""
    report = msgspec.convert(document, Report, strict=False)
    points = tuple(_point(one) for one in report.benchmarks)
    first, strategy = report.benchmarks[0], _strategy(report.benchmarks[0])
    return Measurement(
        points=points,
        definitions={
            "start": "when sent",
            "ttft_ms": "first token - start",
            "tpot_ms": "GuideLLM's inter_token_latency_ms, one mean for each request",
            "itl_ms": "not in the file: its values are one mean for each request",
            "percentiles": "of successful requests; failed ones are not ranked",
            "rates": "GuideLLM's means over its measurement period",
        },
        model=_model(document),
        workload=Workload(
            arrivals=_arrivals(strategy),
            qps=points[0].qps,
            concurrency=points[0].concurrency,
            prompt_tokens=_length(first.metrics.prompt_token_count),
            output_tokens=_length(first.metrics.output_token_count),
        ),
        made_by="GuideLLM",
        notes=(f"imported from {name.rpartition('/')[2]}",),
    )


def _point(one: Benchmark) -> LoadPoint:
    metrics, strategy = one.metrics, _strategy(one)
    made = one.scheduler_metrics.requests_made if one.scheduler_metrics else None
    totals = metrics.request_totals or one.request_totals or made or Totals()
    ttft, e2e = _times(metrics.time_to_first_token_ms, totals), _times(metrics.request_latency, totals, 1000)
    concurrency = strategy.streams or (1 if strategy.type_ == "synchronous" else None)
    return LoadPoint(
        target=_target(strategy, concurrency),
        concurrency=concurrency,
        qps=strategy.rate,
        completed=totals.successful,
        failed=totals.errored,
        errors={"unknown": totals.errored} if totals.errored else {},
        window_s=one.duration or 0.0,
        window="GuideLLM's measurement period",
        requests_per_s=_mean(metrics.requests_per_second),
        output_tokens_per_s=_mean(metrics.output_tokens_per_second),
        start="sent",
        ttft_ms=ttft,
        tpot_ms=_times(metrics.inter_token_latency_ms, totals),
        itl_ms=Percentiles(because="GuideLLM writes one mean for each request, which is tpot_ms here"),
        e2e_ms=e2e,
        ttft_from_sent_ms=ttft,
        e2e_from_sent_ms=e2e,
        prompt_tokens_mean=_mean(metrics.prompt_token_count),
        output_tokens_mean=_mean(metrics.output_token_count),
        notes=(f"{totals.incomplete} requests were cut off at the end",) if totals.incomplete else (),
    )


def _strategy(one: Benchmark) -> Strategy:
    for place in (one.config, one.scheduler, one.args):
        if place is not None and place.strategy is not None:
            return place.strategy
    return Strategy()


def _times(found: ByStatus | None, totals: Totals, factor: float = 1.0) -> Percentiles:
    values = found.successful if found else None
    if values is None or values.mean is None or not values.count:
        return Percentiles(because="not in the file")

    def ms(value: float | None) -> float | None:
        return value * factor if value is not None else None

    because = None
    ranks = values.percentiles
    if totals.errored:
        because, ranks = f"{totals.errored} requests failed, and GuideLLM does not rank them", Ranks()
    return Percentiles(
        p50=ms(values.median),
        p90=ms(ranks.p90),
        p99=ms(ranks.p99),
        mean=ms(values.mean),
        sd=ms(values.std_dev),
        because=because,
    )


def _mean(found: ByStatus | None) -> float | None:
    return found.successful.mean if found and found.successful else None


def _length(found: ByStatus | None) -> Lengths:
    return Lengths.fixed(max(1, round(_mean(found) or 1)))


def _arrivals(strategy: Strategy) -> Arrivals:
    if strategy.rate is not None:
        return "poisson" if strategy.type_ == "poisson" else "constant"
    return "burst" if strategy.type_ == "throughput" else "closed"


def _target(strategy: Strategy, concurrency: int | None) -> str:
    if strategy.rate is not None:
        return f"{strategy.rate:g} requests/s {_arrivals(strategy)}"
    return f"concurrency {concurrency}" if concurrency else strategy.type_ or "unknown load"


def _model(document: Document) -> str | None:
    """The model is named in the arguments, whose place changed between releases."""
    place = document.get("args") or document.get("config")
    for _ in range(4):
        if not isinstance(place, dict):
            return None
        args = cast("Document", place)
        if isinstance(model := args.get("model"), str):
            return model
        place = args.get("backend") or args.get("spec")
    return None

"""AIPerf's `profile_export_aiperf.json` (and GenAI-Perf's, which has the same blocks).

Its times begin when a request is sent; `inter_token_latency` is one mean for each request, which is our TPOT;
`std` is the sample standard deviation; failed requests are counted and not ranked. Read from its
documentation of the JSON export, schema 1.x, and its sources.
"""

import msgspec

from model_optimizer.core import Lengths, LoadPoint, Measurement, Percentiles, Workload

from . import Document

TITLE = "AIPerf (`profile_export_aiperf.json`)"


class Block(msgspec.Struct):
    unit: str = ""
    avg: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    std: float | None = None
    count: int | None = None


class LoadConfig(msgspec.Struct):
    concurrency: int | None = None
    request_rate: float | None = None
    arrival_pattern: str | None = None


class EndpointConfig(msgspec.Struct):
    model_names: list[str] = []
    type: str | None = None


class InputConfig(msgspec.Struct):
    endpoint: EndpointConfig = msgspec.field(default_factory=EndpointConfig)
    loadgen: LoadConfig = msgspec.field(default_factory=LoadConfig)


class Export(msgspec.Struct):
    time_to_first_token: Block | None = None
    inter_token_latency: Block | None = None
    request_latency: Block | None = None
    request_throughput: Block | None = None
    output_token_throughput: Block | None = None
    request_count: Block | int | None = None
    error_request_count: Block | int | None = None
    benchmark_duration: Block | None = None
    input_sequence_length: Block | None = None
    output_sequence_length: Block | None = None
    goodput: Block | None = None
    input_config: InputConfig = msgspec.field(default_factory=InputConfig)
    start_time: str | None = None


def recognises(document: Document) -> bool:
    block = document.get("request_latency")
    return isinstance(block, dict) and "avg" in block and "request_throughput" in document


def read(document: Document, name: str) -> Measurement:
    """One point. ValidationError when a field has another type than AIPerf writes."""
    found = msgspec.convert(document, Export, strict=False)
    load, endpoint = found.input_config.loadgen, found.input_config.endpoint
    failed = _count(found.error_request_count)
    ttft = _times(found.time_to_first_token, failed)
    e2e = _times(found.request_latency, failed)
    point = LoadPoint(
        target=_target(load),
        concurrency=None if load.request_rate else load.concurrency,
        qps=load.request_rate,
        completed=_count(found.request_count),
        failed=failed,
        errors={"unknown": failed} if failed else {},
        window_s=_seconds(found.benchmark_duration),
        window="AIPerf's benchmark duration",
        requests_per_s=_avg(found.request_throughput),
        output_tokens_per_s=_avg(found.output_token_throughput),
        goodput_requests_per_s=_avg(found.goodput),
        start="sent",
        ttft_ms=ttft,
        tpot_ms=_times(found.inter_token_latency, failed),
        itl_ms=Percentiles(because="AIPerf writes one mean for each request, which is tpot_ms here"),
        e2e_ms=e2e,
        ttft_from_sent_ms=ttft,
        e2e_from_sent_ms=e2e,
        prompt_tokens_mean=_avg(found.input_sequence_length),
        output_tokens_mean=_avg(found.output_sequence_length),
    )
    return Measurement(
        points=(point,),
        definitions={
            "start": "when sent",
            "ttft_ms": "first token - start",
            "tpot_ms": "AIPerf's inter_token_latency, one mean for each request",
            "percentiles": "interpolated, of valid requests; failed ones are not ranked",
            "rates": "over AIPerf's benchmark duration",
        },
        model=endpoint.model_names[0] if endpoint.model_names else None,
        api=endpoint.type,
        workload=Workload(
            arrivals="poisson" if load.request_rate else "closed",
            qps=load.request_rate,
            concurrency=load.concurrency,
            prompt_tokens=Lengths.fixed(max(1, round(_avg(found.input_sequence_length) or 1))),
            output_tokens=Lengths.fixed(max(1, round(_avg(found.output_sequence_length) or 1))),
        ),
        started=found.start_time,
        made_by="AIPerf",
        notes=(f"imported from {name.rpartition('/')[2]}",),
    )


_TO_MS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "seconds": 1000.0, "us": 1e-3, "ns": 1e-6}


def _times(block: Block | None, failed: int) -> Percentiles:
    if block is None or block.avg is None or block.unit not in _TO_MS:
        return Percentiles(because="not in the file")
    factor = _TO_MS[block.unit]

    def ms(value: float | None) -> float | None:
        return value * factor if value is not None else None

    because = f"{failed} requests failed, and AIPerf does not rank them" if failed else None
    return Percentiles(
        p50=ms(block.p50),
        p90=None if failed else ms(block.p90),
        p99=None if failed else ms(block.p99),
        mean=ms(block.avg),
        sd=ms(block.std),
        because=because,
    )


def _avg(block: Block | None) -> float | None:
    return block.avg if block else None


def _count(block: Block | int | None) -> int:
    return block if isinstance(block, int) else round(_avg(block) or 0)


def _seconds(block: Block | None) -> float:
    if block is None or block.avg is None:
        return 0.0
    return block.avg * _TO_MS.get(block.unit, 1000.0) / 1000


def _target(load: LoadConfig) -> str:
    if load.request_rate:
        return f"{load.request_rate:g} requests/s {load.arrival_pattern or 'poisson'}"
    return f"concurrency {load.concurrency}" if load.concurrency else "unknown load"

"""`vllm bench serve --save-result`, with or without `--save-detailed`.

vLLM's times begin when a request is sent, its first token is the first stream event, its percentiles
interpolate over completed requests, and its rates are over the time until the last answer. With the detailed
lists percentiles are computed anew under our definitions, failures at the top; without them they are vLLM's.
Read from vLLM's benchmarks/serve.py, releases 0.8.5 to 0.32.0.
"""

from collections.abc import Sequence

import msgspec

from model_optimizer.bench.percentiles import percentiles
from model_optimizer.core import Lengths, LoadPoint, Measurement, Percentiles, Workload

from . import Document

TITLE = "`vllm bench serve --save-result`"
_NAMES = ("ttft", "tpot", "itl", "e2el")


class Result(msgspec.Struct):
    """The fields that are read. Lists are there with `--save-detailed` only, one entry a request."""

    completed: int
    duration: float
    model_id: str | None = None
    date: str | None = None
    backend: str | None = None
    endpoint_type: str | None = None
    num_prompts: int | None = None
    request_rate: float | str | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    failed: int | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    request_throughput: float | None = None
    output_throughput: float | None = None
    request_goodput: float | None = None
    ttfts: list[float] | None = None
    itls: list[list[float]] | None = None
    latencies: list[float] | None = None
    errors: list[str] | None = None
    input_lens: list[int] | None = None
    output_lens: list[int] | None = None


def recognises(document: Document) -> bool:
    names = {"completed", "duration", "request_throughput"}
    return names <= document.keys() and ("backend" in document or "endpoint_type" in document)


def read(document: Document, name: str) -> Measurement:
    """One point. ValidationError when a field has another type than vLLM writes."""
    found = msgspec.convert(document, Result, strict=False)
    failed = found.failed if found.failed is not None else max(0, (found.num_prompts or 0) - found.completed)
    rate = None if found.request_rate in (None, "inf") else float(found.request_rate or 0.0)
    detailed = _detailed(found)
    times = _exact(found, failed) if detailed else {n: _given(document, n, failed) for n in _NAMES}
    whole = [1000 * x for x in found.latencies or () if x > 0]
    if times["e2el"].mean is None and len(whole) == found.completed > 0:
        times["e2el"] = _spread(whole, failed)  # newer releases keep these without --save-detailed
    mean_in = _mean(found.total_input_tokens, found.completed)
    mean_out = _mean(found.total_output_tokens, found.completed)
    point = LoadPoint(
        target=_target(found, rate),
        concurrency=found.max_concurrency,
        qps=rate,
        completed=found.completed,
        failed=failed,
        errors=_errors(found, failed),
        window_s=found.duration,
        window="from the first request to the end of the last one (vllm bench)",
        requests_per_s=found.request_throughput,
        input_tokens_per_s=(found.total_input_tokens or 0) / found.duration if found.duration > 0 else None,
        output_tokens_per_s=found.output_throughput,
        goodput_requests_per_s=found.request_goodput,
        start="sent",
        ttft_ms=times["ttft"],
        tpot_ms=times["tpot"],
        itl_ms=times["itl"],
        e2e_ms=times["e2el"],
        ttft_from_sent_ms=times["ttft"],
        e2e_from_sent_ms=times["e2el"],
        tokens_counted_by="vllm bench (server usage, else its tokenizer)",
        prompt_tokens_mean=mean_in,
        output_tokens_mean=mean_out,
        vllm_bench={k: v for k, v in document.items() if isinstance(v, int | float) and _block(k)},
    )
    return Measurement(
        points=(point,),
        definitions=_definitions(detailed, open_loop=rate is not None),
        vllm_bench=point.vllm_bench,
        model=found.model_id,
        api=found.backend or found.endpoint_type,
        workload=Workload(
            arrivals="burst" if rate is None and not found.max_concurrency else "gamma" if rate else "closed",
            qps=rate,
            burstiness=found.burstiness,
            concurrency=found.max_concurrency,
            requests=found.num_prompts,
            prompt_tokens=_lengths(found.input_lens, mean_in),
            output_tokens=_lengths(found.output_lens, mean_out),
        ),
        started=found.date,
        made_by="vllm bench serve",
        notes=(f"imported from {name.rpartition('/')[2]}",),
    )


def _block(key: str) -> bool:
    return key.endswith(("_ms", "_throughput")) or key in ("completed", "failed", "duration")


def _detailed(found: Result) -> bool:
    return (
        found.ttfts is not None
        and found.itls is not None
        and len(found.ttfts) == len(found.itls)
        and len(found.ttfts) >= found.completed
    )


def _exact(found: Result, failed: int) -> dict[str, Percentiles]:
    """From the lists: a request failed when it has an error text, or no time where there are no texts."""
    rows = list(zip(found.ttfts or [], found.itls or [], strict=True))
    errors = found.errors if found.errors and len(found.errors) == len(rows) else None
    good = [i for i, (ttft, _) in enumerate(rows) if (not errors[i] if errors else ttft > 0)]
    tokens = found.output_lens if found.output_lens and len(found.output_lens) == len(rows) else None
    gaps = [sum(rows[i][1]) for i in good]
    counts = [tokens[i] if tokens else len(rows[i][1]) + 1 for i in good]
    tpot = [1000 * g / (n - 1) for g, n in zip(gaps, counts, strict=True) if n > 1]
    return {
        "ttft": _spread([1000 * rows[i][0] for i in good], failed),
        "tpot": _spread(tpot, failed),
        "itl": percentiles([1000 * gap for i in good for gap in rows[i][1]], independent=False),
        "e2el": _spread([1000 * (rows[i][0] + g) for i, g in zip(good, gaps, strict=True)], failed),
    }


def _spread(values: Sequence[float], failed: int) -> Percentiles:
    from dataclasses import replace
    from statistics import stdev

    found = percentiles(values, failed)
    return replace(found, sd=stdev(values)) if len(values) > 1 else found


def _given(document: Document, name: str, failed: int) -> Percentiles:
    """vLLM's own statistics. A 0 where nothing completed is no time; percentiles of completed requests
    alone are not ours when some failed."""

    def value(key: str) -> float | None:
        found = document.get(key)
        return float(found) if isinstance(found, int | float) and found > 0 else None

    lost = f"{failed} requests failed, and vLLM ranks completed ones alone" if failed else None
    p99 = None if failed else value(f"p99_{name}_ms")
    p90 = None if failed else value(f"p90_{name}_ms")
    mean = value(f"mean_{name}_ms")
    because = lost if mean is not None else "vllm bench did not write it"
    median = value(f"median_{name}_ms")
    return Percentiles(p50=median, p90=p90, p99=p99, mean=mean, sd=value(f"std_{name}_ms"), because=because)


def _target(found: Result, rate: float | None) -> str:
    if rate is not None:
        shape = "poisson" if found.burstiness == 1 else f"gamma {found.burstiness:g}"
        limit = f", at most {found.max_concurrency} in flight" if found.max_concurrency else ""
        return f"{rate:g} requests/s {shape}{limit}"
    if found.max_concurrency:
        return f"concurrency {found.max_concurrency}"
    return f"burst of {found.num_prompts or found.completed} requests"


def _errors(found: Result, failed: int) -> dict[str, int]:
    return {"unknown": failed} if failed else {}


def _mean(total: int | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def _lengths(lengths: Sequence[int] | None, mean: float | None) -> Lengths:
    if lengths and any(n > 0 for n in lengths):
        known = [float(n) for n in lengths if n > 0]
        return Lengths.fixed(int(known[0])) if len(set(known)) == 1 else _empirical(known)
    return Lengths.fixed(max(1, round(mean or 1)))


def _empirical(values: Sequence[float]) -> Lengths:
    return Lengths(kind="empirical", numbers=tuple(values))


def _definitions(detailed: bool, *, open_loop: bool) -> dict[str, str]:
    late = "; how much later than wanted is not in the file" if open_loop else ""
    return {
        "start": f"when sent{late}",
        "ttft_ms": "first stream event - start, whether it holds text or not",
        "tpot_ms": "(last token - first token) / (tokens - 1), for each request",
        "percentiles": "computed anew from the detailed lists: order statistics, failures rank above all"
        if detailed
        else "interpolated, over completed requests",
        "rates": "over the time from the first request to the end of the last one",
    }

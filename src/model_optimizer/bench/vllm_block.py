"""The same run under the definitions of `vllm bench serve`, with its names, to compare with its results.

Read from vLLM's benchmarks/serve.py and endpoint_request_func.py: every request starts when it is sent;
the first token is the first stream event with a choice, whether it holds text or not; the gaps are those
between such events; a request ends with the last of them; percentiles interpolate, over completed requests
alone; rates are over the time from the first request to the end of the last one. Its warm-up requests do
not count, and its Poisson gaps are scaled so that they end on time, which ours are not.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from model_optimizer.core import Slo

from .exchange import Outcome
from .percentiles import interpolated

Number = float | int | None


def vllm_bench(outcomes: Sequence[Outcome], slo: Slo, *, generates: bool) -> dict[str, Number]:
    """Times are in milliseconds, as in vLLM's result file; None where it would say 0 for want of data."""
    counted = [o for o in outcomes if o.measured]
    done = [o for o in counted if o.completed and o.sent_ns is not None]
    block: dict[str, Number] = {"completed": len(done), "failed": len(counted) - len(done)}
    begin = min((_sent_ns(o) for o in counted), default=0)
    duration = max(0.0, (max((o.finished_ns for o in counted), default=begin) - begin) / 1e9)
    block["duration"] = duration
    block["total_input_tokens"] = inputs = sum(o.prompt_tokens or o.wanted_prompt_tokens or 0 for o in done)
    block["request_throughput"] = _rate(len(done), duration)
    if not generates:
        block["total_token_throughput"] = _rate(inputs, duration)
        return block | _spread("e2el", [_e2el(o) for o in done])
    outputs = sum(o.tokens or 1 for o in done)
    block["total_output_tokens"] = outputs
    block["output_throughput"] = _rate(outputs, duration)
    block["total_token_throughput"] = _rate(inputs + outputs, duration)
    block["request_goodput"] = _rate(sum(_good(o, slo) for o in done), duration) if _limits(slo) else None
    streamed = [o for o in done if o.event_ns]
    block |= _spread("ttft", [_ttft(o) for o in streamed])
    block |= _spread("tpot", [_tpot(o) for o in streamed if (o.tokens or 0) > 1])
    block |= _spread("itl", [(b - a) / 1e6 for o in done for a, b in pairwise(o.event_ns)])
    return block | _spread("e2el", [_e2el(o) for o in done])


def _spread(name: str, values: Sequence[float]) -> dict[str, Number]:
    mean = math.fsum(values) / len(values) if values else None
    deviation = (
        math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values)) if mean is not None else None
    )
    return {
        f"mean_{name}_ms": mean,
        f"median_{name}_ms": interpolated(values, 0.5),
        f"std_{name}_ms": deviation,
        f"p99_{name}_ms": interpolated(values, 0.99),
    }


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None


def _sent_ns(outcome: Outcome) -> int:
    return outcome.scheduled_ns if outcome.sent_ns is None else outcome.sent_ns


def _e2el(outcome: Outcome) -> float:
    return ((outcome.event_ns[-1] if outcome.event_ns else outcome.finished_ns) - _sent_ns(outcome)) / 1e6


def _ttft(outcome: Outcome) -> float:
    return (outcome.event_ns[0] - _sent_ns(outcome)) / 1e6


def _tpot(outcome: Outcome) -> float:
    tokens = outcome.tokens or 0
    return (outcome.event_ns[-1] - outcome.event_ns[0]) / 1e6 / (tokens - 1) if tokens > 1 else 0.0


def _limits(slo: Slo) -> bool:
    return any(limit is not None for limit in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms))


def _good(outcome: Outcome, slo: Slo) -> bool:
    pairs = (
        (slo.ttft_ms, _ttft(outcome) if outcome.event_ns else math.inf),
        (slo.tpot_ms, _tpot(outcome) if outcome.event_ns else 0.0),
        (slo.e2e_ms, _e2el(outcome)),
    )
    return all(limit is None or value <= limit for limit, value in pairs)

"""What one core of this client can do at the lengths at hand, against a server that does no work."""

from dataclasses import replace

from model_optimizer.core import Lengths, Progress, Slo, Workload

from .options import BenchOptions
from .run import measure
from .target import Target

# A pace at which neither side is saturated and no two tokens of a stream arrive together.
PACE_MS = 4.0
_CONCURRENCY = 32
_SECONDS = 0.4
_LONGEST = 128


def ceiling(null_server: str, workload: Workload, *, stream: bool, progress: Progress) -> float:
    """Requests per second that would keep the client's thread busy all the time.

    `null_server` is the URL of testing/null_server with a pace of `PACE_MS`. The client is loaded well
    below its limit and its CPU time per request is extrapolated: the answer does not depend on how fast
    the server is. Answers longer than 128 tokens are extrapolated from their number of tokens.
    """
    tokens = max(1, round(workload.output_tokens.mean))
    work = replace(
        workload,
        arrivals="closed",
        qps=None,
        concurrency=_CONCURRENCY,
        requests=None,
        images=(),
        prompt_tokens=Lengths.fixed(max(1, round(workload.prompt_tokens.mean))),
        output_tokens=Lengths.fixed(min(tokens, _LONGEST)),
    )
    target = Target(
        url=null_server,
        model="null",
        api="completions" if workload.task == "generate" else "embeddings",
        stream=stream,
        vocab_size=32_000,
    )
    found = measure(
        target,
        work,
        Slo(),
        progress=lambda _, share: progress("calibrating the client", share),
        options=BenchOptions(duration_s=_SECONDS),
    )
    (point,) = found.points
    busy = point.client.cpu_share or 1.0
    return (point.requests_per_s or 0.0) / busy * min(1.0, _LONGEST / tokens)

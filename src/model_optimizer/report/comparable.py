"""May two measurements be compared at all? Each reason says what differs, so that a reader can judge it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from model_optimizer.core import LoadPoint, Measurement, Percentiles

_LENGTHS_APART = 0.02


def reasons(a: Sequence[Measurement], b: Sequence[Measurement]) -> tuple[str, ...]:
    """Why the two sides are not of the same thing; empty when they are, as far as the files tell."""
    found = [*_whole(a, "A"), *_whole(b, "B")]
    first, second = a[0], b[0]
    for one in (*a[1:], *b[1:]):
        found += [f"runs of one side differ: {r}" for r in _differing(a[0] if one in a else b[0], one)]
    found += _differing(first, second)
    return tuple(dict.fromkeys(found))


def _whole(side: Sequence[Measurement], name: str) -> Iterator[str]:
    for one in side:
        if one.invalid:
            yield f"{name} is invalid: {one.invalid}"
        if one.interrupted:
            yield f"{name} was interrupted"
        if one.client.healthy is False and one.client.verdict != "marked":
            yield f"{name} measured its own client: {one.client.because}"
        if not any(point.completed for point in one.points):
            yield f"{name} holds no completed request"


def _differing(a: Measurement, b: Measurement) -> Iterator[str]:
    if a.model and b.model and _short(a.model) != _short(b.model):
        yield f"models differ: {a.model} and {b.model}"
    if a.host_digest and b.host_digest and a.host_digest != b.host_digest:
        yield "they were measured on different machines"
    one, other = a.telemetry.get("machine"), b.telemetry.get("machine")
    if isinstance(one, str) and isinstance(other, str) and one != other:
        yield f"machines differ: {one} and {other}"
    if a.made_by is None and b.made_by is None and a.api and b.api and a.api != b.api:
        yield f"interfaces differ: {a.api} and {b.api}"
    if a.made_by != b.made_by and {a.made_by, b.made_by} - {None, "vllm bench serve"}:
        names = " and ".join(m or "mopt bench" for m in (a.made_by, b.made_by))
        yield f"definitions differ: {names} do not mean the same by their numbers"
    yield from _lengths(a, b)


def _lengths(a: Measurement, b: Measurement) -> Iterator[str]:
    """Lengths as they were asked for (files of other tools do not say that), and as they came out."""
    if a.workload and b.workload and a.made_by is None and b.made_by is None:
        for what in ("prompt_tokens", "output_tokens"):
            one, other = getattr(a.workload, what), getattr(b.workload, what)
            if _apart(one.mean, other.mean):
                yield f"{what.replace('_', ' ')} differ: {one} and {other}"
        if a.workload.shared_prefix != b.workload.shared_prefix:
            yield f"shared prefixes differ: {a.workload.shared_prefix} and {b.workload.shared_prefix} tokens"
    for x, y in pairs(a, b):
        for what in ("prompt_tokens_mean", "output_tokens_mean"):
            one, other = getattr(x, what), getattr(y, what)
            if one and other and _apart(one, other):
                words = what.removesuffix("_mean").replace("_", " ")
                yield f"{words} came out differently at {x.target}: {one:.4g} and {other:.4g}"


def _apart(a: float, b: float) -> bool:
    return abs(a - b) > _LENGTHS_APART * max(a, b)


def _short(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2].lower()


def key(point: LoadPoint) -> tuple[object, ...]:
    """What makes two points the same load."""
    if point.qps is not None:
        return ("qps", float(f"{point.qps:.4g}"))
    return ("concurrency", point.concurrency) if point.concurrency is not None else ("target", point.target)


def pairs(a: Measurement, b: Measurement) -> list[tuple[LoadPoint, LoadPoint]]:
    """Points of the same load, in the order of A."""
    there = {key(point): point for point in b.points}
    return [(point, there[key(point)]) for point in a.points if key(point) in there]


def same_terms(point: LoadPoint, *, vllm: bool, sent: bool) -> LoadPoint:
    """The point in terms that both sides have: times from when a request was sent where one side has no
    others, and vLLM's own definitions where one side is a result of `vllm bench`."""
    if vllm and point.vllm_bench:
        return replace(
            point,
            requests_per_s=_number(point, "request_throughput", point.requests_per_s),
            output_tokens_per_s=_number(point, "output_throughput", point.output_tokens_per_s),
            ttft_ms=_block(point, "ttft"),
            tpot_ms=_block(point, "tpot"),
            e2e_ms=_block(point, "e2el"),
        )
    if sent and point.start == "scheduled":
        return replace(point, ttft_ms=point.ttft_from_sent_ms, e2e_ms=point.e2e_from_sent_ms, start="sent")
    return point


def _number(point: LoadPoint, name: str, otherwise: float | None) -> float | None:
    found = point.vllm_bench.get(name)
    return float(found) if found else otherwise


def _block(point: LoadPoint, name: str) -> Percentiles:
    return Percentiles(
        p50=_number(point, f"median_{name}_ms", None),
        p99=_number(point, f"p99_{name}_ms", None),
        mean=_number(point, f"mean_{name}_ms", None),
        sd=_number(point, f"std_{name}_ms", None),
    )

"""The screen of `mopt bench`: a row for each level of load, then what a reader should know."""

from model_optimizer.cli.render import printable, table
from model_optimizer.core import LoadPoint, Measurement, Percentiles
from model_optimizer.core.measurement import Part
from model_optimizer.core.units import show_bytes, show_ms

_FEW = 4  # levels whose windows are told one by one


def measurement_text(found: Measurement) -> str:
    """Everything a person needs to judge the run; `--json` has the rest."""
    lines = [f"{found.model} at {found.url}, {found.api}"]
    if found.interrupted:
        lines.append("INTERRUPTED: what was measured until then")
    if found.client.verdict == "invalid":
        lines.append("INVALID: the client could not keep up, these numbers are its own and not the server's")
    lines += ["", table(_rows(found), right=frozenset(range(1, len(_heading(found))))).rstrip(), ""]
    lines += [f"{name}: {text}" for name, text in (*_capacity(found), *_facts(found))]
    return "\n".join(printable(line) for line in lines) + "\n"


def _capacity(found: Measurement) -> list[tuple[str, str]]:
    """The answer of a search, and each level that led to it."""
    if (capacity := found.capacity) is None:
        return []
    unit = "requests/s" if capacity.axis == "requests/s" else "requests in flight"
    best = "no level" if capacity.best is None else f"up to {capacity.best:.4g} {unit}"
    above = f", not {capacity.above:.4g}" if capacity.above is not None else ""
    sure = "resolved" if capacity.resolved else "not resolved"
    facts = [("meets the limits", f"{best}{above} ({sure}: {capacity.because})")]
    for trial in capacity.trials:
        low, high = trial.interval
        said = f"{trial.met} of {trial.total} met every limit ({low:.1%} to {high:.1%})"
        if trial.aborted:
            said += ", stopped early"
        if not trial.kept_up:
            said += ", the queue grew"
        facts.append((f"  at {trial.level:.4g}", said))
    return facts


def _generates(found: Measurement) -> bool:
    return found.api in ("completions", "chat")


def _limited(found: Measurement) -> bool:
    slo = found.slo
    return slo is not None and any(x is not None for x in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms))


def _heading(found: Measurement) -> list[str]:
    heads = ["load", "done", "failed", "req/s"]
    if _generates(found):
        heads += ["out tok/s", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99"]
    else:
        heads += ["in tok/s"]
    return [*heads, "E2E p50", "p99", *(["goodput/s"] if _limited(found) else [])]


def _rows(found: Measurement) -> list[list[str]]:
    return [_heading(found), *(_row(found, point) for point in found.points)]


def _row(found: Measurement, point: LoadPoint) -> list[str]:
    name = f"{point.target} *" if point.target in found.pareto else point.target
    cells = [name, str(point.completed), str(point.failed), _rate(point.requests_per_s)]
    if _generates(found):
        cells += [_rate(point.output_tokens_per_s), *_pair(point.ttft_ms), *_pair(point.tpot_ms)]
        cells += [_place(point.itl_ms.p99, point.itl_ms)]
    else:
        cells += [_rate(point.input_tokens_per_s)]
    cells += _pair(point.e2e_ms)
    return [*cells, _rate(point.goodput_requests_per_s)] if _limited(found) else cells


def _pair(values: Percentiles) -> list[str]:
    return [_place(values.p50, values), _place(values.p99, values)]


def _place(value: float | None, values: Percentiles) -> str:
    """A percentile; `failed` where it falls on a failed request."""
    fell = value is None and values.because is not None and "failed" in values.because
    return "failed" if fell else show_ms(value)


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _facts(found: Measurement) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for point in found.points:
        name = point.target
        facts += [(name, f"{n} x {kind}, {_example(point, kind)}") for kind, n in point.errors.items()]
        facts += [(name, note) for note in point.notes]
        if point.client.healthy is False:
            near = point.client.verdict == "marked"
            how = "the client was near its limits" if near else "the client could not keep up"
            facts.append((name, f"{how}: {point.client.because}"))
        if len(found.points) <= _FEW:
            facts.append((name, f"window of {point.window_s:.3g} s, {point.window}"))
        facts += [(name, text) for text in _trust(point)]
        facts += [(f"{name}, {part.name}", _part(part)) for part in point.parts]
    if len(found.points) > _FEW:
        spans = sorted(point.window_s for point in found.points)
        facts.append(("windows", f"{spans[0]:.3g} to {spans[-1]:.3g} s, without warm-up and drain"))
    if found.pareto:
        facts.append(("*", "no other level has both more throughput and a lower median latency"))
    first = found.points[0]
    if first.client.ceiling_requests_per_s is not None:
        facts.append(("client", _ceiling(found)))
    facts.append(("times begin", "when wanted" if first.start == "scheduled" else "when sent"))
    if first.tokens_counted_by:
        facts.append(("tokens counted by", first.tokens_counted_by))
    facts += [("note", note) for note in found.notes]
    facts += _drift(found)
    facts.append(("energy", _energy(found)))
    peaks = [p for p in found.points if p.memory_bytes is not None]
    if peaks:
        top = max(peaks, key=lambda p: p.memory_bytes or 0)
        facts.append(("memory", f"{show_bytes(top.memory_bytes)}, {top.memory_source}"))
    return facts


def _trust(point: LoadPoint) -> list[str]:
    """Whether latency held, whether runs agree, and what would be hidden if requests began when sent."""
    said: list[str] = []
    if point.steady is False:
        said.append(f"not steady: {point.steady_because}")
    if point.half_widths:
        widths = ", ".join(f"{k} {w:.1%}" if w is not None else k for k, w in point.half_widths.items())
        ended = "as narrow as asked" if point.resolved else "not as narrow as asked"
        said.append(f"{point.runs} runs, means known to {widths}: {ended}")
    wanted, sent = point.e2e_from_scheduled_ms.p99, point.e2e_from_sent_ms.p99
    if point.start == "scheduled" and wanted is not None and sent is not None and wanted > 1.01 * sent + 0.5:
        said.append(
            f"E2E p99 is {show_ms(wanted)} from when requests were wanted, {show_ms(sent)} from when sent"
        )
    return said


def _part(part: Part) -> str:
    times = f"TTFT {_place(part.ttft_ms.p50, part.ttft_ms)}, E2E {_place(part.e2e_ms.p50, part.e2e_ms)} (p50)"
    return f"{part.completed} done, {part.failed} failed, {times}"


def _ceiling(found: Measurement) -> str:
    client = found.client
    cores = "one core" if client.processes == 1 else f"{client.processes} cores"
    most = max((p.client.cpu_share or 0.0 for p in found.points), default=0.0)
    return (
        f"{cores} could do {client.ceiling_requests_per_s:.0f} requests/s at these lengths; {most:.0%} busy"
    )


def _example(point: LoadPoint, kind: str) -> str:
    return f"for example: {point.error_examples.get(kind, '')}"


def _drift(found: Measurement) -> list[tuple[str, str]]:
    largest = max((p.prompt_tokens_drift or 0.0 for p in found.points), key=abs)
    if abs(largest) < 0.01:
        return []
    return [("prompts", f"{abs(largest):.0%} {'longer' if largest > 0 else 'shorter'} than wanted")]


def _energy(found: Measurement) -> str:
    parts = [
        f"{p.energy_j:.3g} J in the window of {p.target}" for p in found.points if p.energy_j is not None
    ]
    source = found.points[0].energy_source
    return f"{', '.join(parts)} ({source})" if parts else source

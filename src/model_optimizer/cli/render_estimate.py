"""The screen of `mopt estimate`: what, how sure, what limits, where the numbers come from."""

from collections.abc import Mapping

from model_optimizer.cli.render import printable, table
from model_optimizer.core import Estimate, Spread
from model_optimizer.core.calibration import Calibration
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.core.units import show_ms

TIMES = (
    ("time to first token", "ttft_ms"),
    ("time per output token", "tpot_ms"),
    ("whole request", "e2e_ms"),
)
RATES = (
    ("output tokens/s", "output_tokens_per_s"),
    ("input tokens/s", "input_tokens_per_s"),
    ("requests/s", "requests_per_s"),
)


def estimate_text(found: Estimate, question: EstimateQuestion) -> str:
    """Everything a person needs; `--json` has the same."""
    tables = [text.rstrip("\n") for text in (_times(found), _rates(found)) if text]
    lines = [_headline(question), f"  {_load(question)}"]
    for text in tables:
        lines += ["", text]
    if found.saturated:
        lines += ["", "SATURATED: more is asked than can be done; the rates are what is reached."]
    lines += ["", *_bound(found), "", f"Numbers from: {found.provenance}"]
    lines.append("In brackets: the interval that holds the truth in 8 of 10 cases, for the mean.")
    if found.settings:
        lines += ["", "For these settings:", *(f"  {s.name} {s.value}: {s.because}" for s in found.settings)]
    missing = {because: name for name, because in found.because.items()}
    lines += (
        ["", *(f"no {_named(found.because, because)}: {because}" for because in missing)] if missing else []
    )
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _headline(question: EstimateQuestion) -> str:
    placed = question.placed
    gpus = placed.tensor_parallel * placed.pipeline_parallel * placed.data_parallel
    where = f"{gpus} x {placed.gpu.name}" if gpus > 1 else placed.gpu.name
    engine = f"{placed.engine} {placed.version}" if placed.version else placed.engine
    return f"{placed.model.name} on {where} with {engine}"


def _load(question: EstimateQuestion) -> str:
    work = question.workload
    if work.arrivals == "burst":
        load = f"{work.requests} requests at once"
    elif work.qps is not None:
        load = f"{work.qps:g} requests/s ({work.arrivals})"
    else:
        load = f"{work.concurrency or 1} requests in flight"
    lengths = f"{work.prompt_tokens} prompt tokens"
    if work.task == "generate":
        lengths += f", {work.output_tokens} output tokens"
    return f"{load}, {lengths}"


def _times(found: Estimate) -> str:
    rows = [["", "p50", "mean", "p99", "[80 %]"]]
    for title, name in TIMES:
        spread: Spread = getattr(found, name)
        if spread.mean is None:
            continue
        places = [show_ms(spread.p50), show_ms(spread.mean), show_ms(spread.p99)]
        rows.append([title, *places, _ends(found.interval, name, milliseconds=True)])
    return table(rows, right=frozenset({1, 2, 3})) if len(rows) > 1 else ""


def _rates(found: Estimate) -> str:
    rows = [["", "rate", "[80 %]"]]
    for title, name in RATES:
        rate: float | None = getattr(found, name)
        if rate is not None:
            rows.append([title, _number(rate), _ends(found.interval, name, milliseconds=False)])
    return table(rows, right=frozenset({1}))


def _ends(interval: Mapping[str, tuple[float, float]], name: str, *, milliseconds: bool) -> str:
    if name not in interval:
        return ""
    low, high = interval[name]
    if milliseconds:
        return f"[{show_ms(low)} to {show_ms(high)}]"
    return f"[{_number(low)} to {_number(high)}]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bound(found: Estimate) -> list[str]:
    lines = [f"Limited by: {found.bound}"]
    whole = sum(found.step_ms.values())
    if whole:
        ordered = sorted(found.step_ms.items(), key=lambda part: -part[1])
        parts = ", ".join(f"{name} {ms / whole:.0%}" for name, ms in ordered if ms / whole >= 0.01)
        lines.append(f"A mean step of the engine takes {show_ms(whole)}: {parts}")
    return lines


def _named(because: Mapping[str, str], reason: str) -> str:
    return ", ".join(name for name, text in because.items() if text == reason)


def calibration_text(found: Calibration, path: str) -> str:
    """What was found on a GPU, and where it is kept."""
    rows = [["products", "launch", "of bandwidth", "of peak", "points", "error"]]
    rows += [
        [
            number,
            f"{rates.launch_us:.3g} us",
            f"{rates.bandwidth:.0%}",
            f"{rates.compute:.0%}",
            str(rates.points),
            f"{rates.error:.0%}",
        ]
        for number, rates in found.kernels.items()
    ]
    lines = [f"{found.gpu} ({found.device}), torch {found.torch}", ""]
    lines.append(table(rows, right=frozenset({1, 2, 3, 4, 5})).rstrip("\n"))
    if found.copy_bytes_per_s:
        lines += ["", f"copies: {found.copy_bytes_per_s / 1e9:.0f} GB/s, read and written"]
    if found.eager_launch_us:
        graph = f", {found.graph_launch_us:.3g} us in a graph" if found.graph_launch_us else ""
        back = (
            f", {found.round_trip_us:.3g} us until the host has read its number"
            if found.round_trip_us
            else ""
        )
        lines.append(f"a small kernel: {found.eager_launch_us:.3g} us{graph}{back}")
    if found.sustained:
        lines.append(f"under steady work: {found.sustained:.0%} of the rate after a pause")
    lines += [f"note: {note}" for note in found.notes]
    lines += ["", f"kept in {path}; `mopt estimate` uses it for this GPU"]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"

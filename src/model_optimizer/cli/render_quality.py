"""What layer `quality` adds to a verdict's screen: by place in the context, by layer, what to leave alone."""

from collections.abc import Sequence

from model_optimizer.core import Comparison, Verdict
from model_optimizer.verify.sensitivity import sensitive

from .render import table

SHOWN = 8
"""Layers that are listed of those that cost most."""

MEANING = {
    "kl_p99": "the furthest hundredth of positions, nats",
    "task_recovery": "right answers of the candidate / of the reference",
    "task_accuracy": "questions answered right",
    "task_accuracy_reference": "the same of the reference",
    "task_same": "the same choice, right or wrong",
    "recall_recovery": "documents found at once / by the reference",
    "recall@1": "queries that find their document at once",
    "recall@1_reference": "the same of the reference",
    "recall@10": "queries that find it among ten",
    "recall@10_reference": "the same of the reference",
}


def main_rows(verdict: Verdict) -> tuple[Comparison, ...]:
    """The comparisons of the first table: those that are about the whole model."""
    return tuple(c for c in verdict.comparisons if not _apart(c))


def _apart(comparison: Comparison) -> bool:
    return comparison.metric in ("layer_error", "sensitivity") or comparison.metric.startswith(
        ("recovery@", "kl@")
    )


def sections(verdict: Verdict) -> str:
    """Everything below the first table; empty for other layers."""
    parts = (_places(verdict), _layers(verdict), _sensitivity(verdict))
    return "".join(f"\n{part.rstrip()}\n" for part in parts if part)


def _places(verdict: Verdict) -> str:
    by_name = {c.metric: c for c in verdict.comparisons}
    places = [name.partition("@")[2] for name in by_name if name.startswith("recovery@")]
    if not places:
        return ""
    rows = [["tokens before", "recovery", "95 % interval", "kl", "samples"]]
    for place in places:
        recovery, kl = by_name[f"recovery@{place}"], by_name[f"kl@{place}"]
        low, high = recovery.interval or (float("nan"), float("nan"))
        rows.append(
            [
                place,
                _number(recovery.got),
                f"{low:.4f} to {high:.4f}",
                _number(kl.got),
                f"{recovery.samples or 0:,}",
            ]
        )
    return "By place in the context\n" + table(rows, right=frozenset({1, 3, 4}))


def _layers(verdict: Verdict) -> str:
    found = [c for c in verdict.comparisons if c.metric == "layer_error"]
    if not found:
        return ""
    rows = [["behind", "relative error"], *([c.where or "", _number(c.got)] for c in found)]
    return "Error of the hidden states\n" + table(rows, right=frozenset({1}))


def _sensitivity(verdict: Verdict) -> str:
    found = [c for c in verdict.comparisons if c.metric == "sensitivity"]
    if not found:
        return ""
    rows = [["only this one quantized", "kl"], *([c.where or "", _number(c.got)] for c in found[:SHOWN])]
    title = f"What each of {len(found)} layers costs alone, the worst first"
    text = f"{title}\n{table(rows, right=frozenset({1}))}"
    hint = "hint: leave the worst in high precision: mopt quantize MODEL --scheme mixed"
    return f"{text.rstrip()}\n{hint} {_options(sensitive(verdict))}"


def _options(names: Sequence[str]) -> str:
    shown = " ".join(f"--exclude '{name}'" if "*" in name else f"--exclude {name}" for name in names[:SHOWN])
    return f"{shown} ..." if len(names) > SHOWN else shown


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if value == 0 or 0.01 <= abs(value) < 10 else f"{value:.3g}"

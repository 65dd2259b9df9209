"""Which layers to leave in high precision, from what each of them costs alone."""

from model_optimizer.core import Verdict

BEARS = 0.8
"""Share of the summed divergence that the layers named for high precision make together (assumed)."""

STACKED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that engines load as one: they keep their precision together or not at all."""


def sensitive(verdict: Verdict) -> tuple[str, ...]:
    """The layers to leave in high precision: the worst that together make most of the divergence.

    Of many that cost about the same no more than a quarter is named.

    In the form that `mopt quantize --exclude` takes, with `mixed` or any other scheme.
    """
    rows = [c for c in verdict.comparisons if c.metric == "sensitivity"]
    total = sum(c.got or 0.0 for c in rows)
    named: list[str] = []
    so_far = 0.0
    for row in rows[: max(1, len(rows) // 4)]:
        if not total or so_far >= BEARS * total:
            break
        so_far += row.got or 0.0
        named += together(row.where or "")
    return tuple(dict.fromkeys(named))


def together(name: str) -> tuple[str, ...]:
    """The layer with those that an engine stacks with it; a block as a pattern of all that is in it."""
    parent, _, last = name.rpartition(".")
    if last.isdecimal():
        return (f"{name}.*",)
    group = next((group for group in STACKED if last in group), (last,))
    return tuple(f"{parent}.{other}" for other in group)

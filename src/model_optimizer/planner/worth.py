"""Is a quantized candidate worth it? Its speed and memory under the real load beside the original's.

The original is the same engine in 16 or 32 bits where it was measured, since another engine's speed says
nothing of a number format; else the reference of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model_optimizer.core import Candidate, LoadPoint, units

PLAIN = ("fp32", "bf16", "fp16")
MARGIN = 0.05
"""As in pick: closer than this is the same speed. ASSUMED."""

BINDS = "revert unless memory binds"

Advice = Literal["keep", "revert", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """`choose`: as fast, only smaller, which is worth something only where memory binds."""

    candidate: str
    original: str
    advice: Advice
    because: str


def worth(candidates: Sequence[Candidate]) -> tuple[Worth, ...]:
    """Every measured candidate with fewer bits beside the original of its engine."""
    measured = [c for c in candidates if c.measurement and c.measurement.points]
    found = [
        _weigh(candidate, original)
        for candidate in measured
        if _quantized(candidate) and (original := _original(candidate, measured))
    ]
    return tuple(w for w in found if w is not None)


def _quantized(candidate: Candidate) -> bool:
    return candidate.fate != "reference" and candidate.plan.scheme not in PLAIN


def _original(candidate: Candidate, measured: Sequence[Candidate]) -> Candidate | None:
    plain = [c for c in measured if c.plan.scheme in PLAIN]
    same = [c for c in plain if c.plan.engine == candidate.plan.engine and c.fate != "reference"]
    if same:
        return max(same, key=lambda c: (_fastest(c), c.name))
    return next((c for c in plain if c.fate == "reference"), None)


def _weigh(candidate: Candidate, original: Candidate) -> Worth | None:
    """At the heaviest of the loads that both ran, since that is where a server spends its life. Loads rise
    to the one that was asked for; the original may be faster at an earlier one."""
    theirs = {p.target: p for p in _points(original)}
    pairs = [(p, theirs[p.target]) for p in _points(candidate) if p.target in theirs]
    ratios = [(b.target, _speed(a) / _speed(b)) for a, b in pairs if _speed(b)]
    if not ratios:
        return None
    heaviest, at_load = ratios[-1]
    saved = _saved(candidate, original)
    words = ", ".join(f"{units.show_ratio(ratio)} at {target}" for target, ratio in ratios)
    text = f"{candidate.name} has {words} of the throughput of {original.name}"
    if at_load > 1 + MARGIN:
        return _worth(candidate, original, "keep", text)
    if at_load < 1 - MARGIN:
        slower = f"slower under this load{_only_light(ratios, heaviest)}"
        revert = "revert, since it is no smaller either" if _no_smaller(candidate, original) else BINDS
        return _worth(candidate, original, "revert", f"{text}: {slower}; {revert}")
    if saved:
        less = f"no faster under this load, {units.show_bytes(saved)} smaller"
        why = f"{text}: {less}; revert if that memory is not needed"
        return _worth(candidate, original, "choose", why)
    why = f"{text}: neither faster under this load nor smaller; revert"
    return _worth(candidate, original, "revert", why)


def _worth(candidate: Candidate, original: Candidate, advice: Advice, because: str) -> Worth:
    return Worth(candidate=candidate.name, original=original.name, advice=advice, because=because)


def _only_light(ratios: Sequence[tuple[str, float]], heaviest: str) -> str:
    light = [target for target, ratio in ratios if target != heaviest and ratio > 1 + MARGIN]
    return f", faster only at {light[0]}" if light else ""


def _points(candidate: Candidate) -> Sequence[LoadPoint]:
    return candidate.measurement.points if candidate.measurement else ()


def _speed(point: LoadPoint) -> float:
    return point.output_tokens_per_s or point.requests_per_s or 0.0


def _fastest(candidate: Candidate) -> float:
    return max((_speed(p) for p in _points(candidate)), default=0.0)


def _saved(candidate: Candidate, original: Candidate) -> int | None:
    """Bytes by which the candidate is smaller; None when that is not known, or too little to count."""
    mine, theirs = _memory(candidate), _memory(original)
    return theirs - mine if mine and theirs and mine < (1 - MARGIN) * theirs else None


def _no_smaller(candidate: Candidate, original: Candidate) -> bool:
    """False when it is not known."""
    return bool(_memory(candidate) and _memory(original)) and _saved(candidate, original) is None


def _memory(candidate: Candidate) -> int:
    """The most at any load; 0 when it is not known."""
    return max((point.memory_bytes or 0 for point in _points(candidate)), default=0)

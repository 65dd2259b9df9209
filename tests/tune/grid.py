"""A space with a known answer: effects of single settings, and some that depend on each other."""

from collections.abc import Mapping

from model_optimizer.core.study import Knob
from model_optimizer.tune import space


def _knob(name: str, values: str, default: str) -> Knob:
    return Knob(name=name, values=tuple(values.split()), default=default, because="", source="test")


KNOBS = (
    _knob("tokens", "512 1024 2048 4096 8192", "2048"),
    _knob("seqs", "8 16 32 64", "64"),
    _knob("cache", "auto fp8", "auto"),
    _knob("graphs", "0 1", "0"),
)


def worth(settings: Mapping[str, str]) -> float:
    """Requests a second within the limits."""
    tokens, seqs = int(settings["tokens"]), int(settings["seqs"])
    value = 10.0
    value *= {512: 0.7, 1024: 0.85, 2048: 1.0, 4096: 1.15, 8192: 1.05}[tokens]
    value *= {8: 0.5, 16: 0.8, 32: 1.1, 64: 1.0}[seqs]
    if settings["cache"] == "fp8":
        value *= 1.12 if seqs >= 32 else 0.97
    if settings["graphs"] == "1":
        value *= 1.3 if tokens <= 4096 else 0.9
    return value


def candidates() -> list[dict[str, str]]:
    return space.combinations(KNOBS, lambda settings: None, seed=0)[0]

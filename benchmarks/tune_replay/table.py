"""A recorded grid: what every configuration was worth beside the default, and how much that varies.

The default was measured beside each configuration; a median of those near in time varies less than one alone.
"""

import gzip
import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from model_optimizer.core.study import Knob, Settings

NEAR = 5
"""The default's worth is the median of its own measurement and so many before and after it."""

LEAST = 0.01
"""A ratio to the default below this counts as this."""

Key = tuple[tuple[str, str], ...]


def key(settings: Mapping[str, str]) -> Key:
    return tuple(sorted(settings.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`logs` are logarithms of goodput beside the default's, one for each pass; a failed start has none."""

    name: str
    knobs: tuple[Knob, ...]
    candidates: tuple[dict[str, str], ...]
    logs: Mapping[Key, tuple[float, ...]]

    def worth(self, settings: Settings) -> float:
        """The mean of the passes, 0 where it did not start."""
        found = self.logs.get(key(settings), ())
        return math.exp(fmean(found)) if found else 0.0

    @property
    def best(self) -> float:
        return max(self.worth(c) for c in self.candidates)

    @property
    def default(self) -> dict[str, str]:
        return {knob.name: knob.default for knob in self.knobs}

    def residuals(self) -> list[float]:
        """How far passes are from the mean of their configuration, widened for the mean being of them."""
        return [
            (value - fmean(values)) * math.sqrt(len(values) / (len(values) - 1))
            for values in self.logs.values()
            if len(values) > 1
            for value in values
        ]

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement, in logarithm."""
        found = self.residuals()
        return math.sqrt(fmean(r * r for r in found)) if found else 0.0


class Noise:
    """A measurement of a configuration: its worth, and a deviation that some pass of the grid had."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table, self._draw = table, random.Random(f"noise {seed}")
        self._residuals = table.residuals() or [0.0]

    def measure(self, settings: Settings) -> float | None:
        """The logarithm of a ratio to the default; None where it does not start."""
        worth = self._table.worth(settings)
        return math.log(worth) + self._draw.choice(self._residuals) if worth > 0 else None


def read(path: Path, near: int = NEAR) -> Table:
    """What record.py wrote, packed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as lines:
        head, *rows = [json.loads(line) for line in lines]
    return of_rows(head, rows, near)


def of_rows(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], near: int) -> Table:
    knobs = tuple(
        Knob(name=name, values=tuple(values), default=default, because="", source="recorded")
        for name, values, default in head["knobs"]
    )
    logs: dict[Key, tuple[float, ...]] = {}
    candidates: dict[Key, dict[str, str]] = {}
    whole = sorted((r for r in rows if "failed" not in r), key=lambda r: r["at"])
    base = [math.log(r["default_value"]) for r in whole]
    for row in rows:
        candidates[key(row["settings"])] = dict(row["settings"])
        logs.setdefault(key(row["settings"]), ())
    for index, row in enumerate(whole):
        around = median(base[max(0, index - near) : index + near + 1])
        logs[key(row["settings"])] += (max(math.log(row["value"]) - around, math.log(LEAST)),)
    ordered = sorted(candidates.values(), key=lambda c: [k.values.index(c[k.name]) for k in knobs])
    return Table(name=head["case"], knobs=knobs, candidates=tuple(ordered), logs=logs)


def smoothed(table: Table) -> Table:
    """The same with each mean drawn toward a fit of single settings and pairs, as far as its error demands.

    A mean of two noisy passes is partly luck, and the best of many is mostly that. The fit takes settings to
    work singly or in pairs, which favours searches that assume the same: look at both tables.
    """
    import numpy as np

    known = [c for c in table.candidates if table.logs[key(c)]]
    rows = np.array([_effects(table, c) for c in known])
    seen = np.array([fmean(table.logs[key(c)]) for c in known])
    best = min((_fit(rows, seen, strength) for strength in (0.3, 1, 3, 10)), key=lambda found: found[0])
    error = np.array([table.noise**2 / len(table.logs[key(c)]) for c in known])
    beyond = max(0.0, best[0] - float(error.mean()))
    drawn = best[1] + (seen - best[1]) * beyond / (beyond + error)
    logs = dict(table.logs)
    for settings, old, new in zip(known, seen, drawn, strict=True):
        logs[key(settings)] = tuple(v + float(new - old) for v in table.logs[key(settings)])
    return Table(name=f"{table.name}, smoothed", knobs=table.knobs, candidates=table.candidates, logs=logs)


def _effects(table: Table, settings: Settings) -> list[float]:
    single = [[float(settings[k.name] == v) - 1 / len(k.values) for v in k.values] for k in table.knobs]
    pairs = [a * b for x, y in itertools.combinations(single, 2) for a in x for b in y]
    return [1.0, *itertools.chain(*single), *pairs]


def _fit(rows: Any, seen: Any, strength: float) -> tuple[float, Any]:
    """(mean square of what each row misses when it is left out, fitted values) of a ridge regression."""
    import numpy as np

    weights = strength * np.eye(rows.shape[1])
    weights[0, 0] = 1e-6
    hat = rows @ np.linalg.solve(rows.T @ rows + weights, rows.T)
    fitted = hat @ seen
    return float((((seen - fitted) / (1 - np.diag(hat))) ** 2).mean()), fitted


def part(table: Table, name: str, value: str) -> Table:
    """The rows in which one knob has one value, as a table of the other knobs."""
    knobs = tuple(k for k in table.knobs if k.name != name)
    chosen = [c for c in table.candidates if c[name] == value]
    bare = [{n: v for n, v in c.items() if n != name} for c in chosen]
    logs = {key(b): table.logs[key(c)] for b, c in zip(bare, chosen, strict=True)}
    return Table(name=f"{table.name}, {name} {value}", knobs=knobs, candidates=tuple(bare), logs=logs)

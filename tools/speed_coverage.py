"""Do the intervals of `mopt estimate` hold the truth in 8 of 10 cases? On sources that took no part.

    python tools/speed_coverage.py [evidence/speed-model/errors.csv]

Reads the errors that `tools/evaluate_speed.py --fit --out` left, where each source was predicted by constants
fitted without it. For each source in turn, the width of an interval is taken from the errors of all *other*
sources (80 % of those of the worst of them), and it is counted how often the source falls inside: an interval cannot
grade itself either. The last column is what the widths that ship (facts/speed/accuracy.toml) hold.
"""

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import evaluate_speed as points_of

from model_optimizer.facts import speed
from model_optimizer.planner.speed.roofline import roofline

SHARE = 0.8
FEW = 5
Row = tuple[str, str, str, float]


def rows(path: Path) -> list[Row]:
    """(fold, kind of steps, quantity, size of the error); bursts have quantities of their own."""
    known = {p.id: p for p in points_of.points()}
    found: list[Row] = []
    kinds: dict[tuple[str, str], str] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        point = known.get(row["id"])
        if point is None or point.source in points_of.DOUBTFUL:
            continue
        place = (point.gpu, point.engine)
        if place not in kinds:
            kinds[place] = roofline(points_of.setup_of(point)).kind
        quantity = ("burst_" if point.burst else "") + row["quantity"]
        found.append((points_of.fold(point), kinds[place], quantity, abs(float(row["log_error"]))))
    return found


def quantile(groups: dict[str, list[float]]) -> float:
    """The width that holds SHARE of the errors of each source: a new one may be as far off as the worst.

    Sources differ from each other more than the rows of one do, so that pooling them is too narrow for the
    next. Sources of fewer rows than FEW show no share and count, together, only where there are no others.
    """
    large = [group for group in groups.values() if len(group) >= FEW]
    return max(_own(group) for group in large or [[size for group in groups.values() for size in group]])


def _own(sizes: list[float]) -> float:
    """The least size that SHARE of them do not exceed."""
    ordered = sorted(sizes)
    return ordered[max(0, math.ceil(SHARE * len(ordered)) - 1)]


def inside(sizes: list[float], width: float) -> float:
    return sum(size <= width for size in sizes) / len(sizes)


def shipped(every: list[Row]) -> dict[tuple[str, str, str], tuple[int, float]]:
    """(rows, share inside the widths that ship) by kind of steps, quantity and source."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for fold, kind, quantity, size in every:
        groups[(kind, quantity, fold)].append(size)
    widths = {place: getattr(speed.accuracy(place[0]), place[1]) for place in groups}
    return {place: (len(sizes), inside(sizes, widths[place])) for place, sizes in groups.items()}


def main() -> None:
    here = Path(__file__).parents[1] / "evidence/speed-model/errors.csv"
    every = rows(Path(sys.argv[1]) if len(sys.argv) > 1 else here)
    groups: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for fold, kind, quantity, size in every:
        groups[(kind, quantity)][fold].append(size)
    head = (
        "kind",
        "quantity",
        "left out",
        "n",
        "width of others",
        "inside",
        "width of all",
        "shipped",
        "inside",
    )
    print(*(cell.ljust(17) for cell in head))
    for (kind, quantity), folds in sorted(groups.items()):
        shipped = getattr(speed.accuracy(kind), quantity)
        for fold, sizes in sorted(folds.items()):
            others = {name: group for name, group in folds.items() if name != fold}
            width = quantile(others) if others else None
            cells = [kind, quantity, fold, str(len(sizes))]
            cells += [f"{width:.2f}", f"{inside(sizes, width):.0%}"] if width is not None else ["-", "-"]
            cells += [f"{quantile(folds):.2f}", f"{shipped:.2f}", f"{inside(sizes, shipped):.0%}"]
            print(*(cell.ljust(17) for cell in cells))


if __name__ == "__main__":
    main()

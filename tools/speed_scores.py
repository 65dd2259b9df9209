"""The score of the speed model, source left out by source, beside what is aimed at.

    python tools/speed_scores.py [evidence/speed-model/errors.csv] > evidence/speed-model/scores.txt

Reads the errors that `tools/evaluate_speed.py --fit --calibrated --out` left: log(predicted / measured) of
each row, by constants that were fitted without its source. GPUs with tables of kernel times or a calibration are
reported apart from the others, loads that arrive at once apart from the rest.
"""

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
import evaluate_speed as points_of

from model_optimizer.facts import speed

ERRORS = Path(__file__).parents[1] / "evidence/speed-model/errors.csv"
AIMED = {"tpot": 0.12, "throughput": 0.12, "ttft": 0.30}
ELSEWHERE = 0.25
RANK = 0.95
Errors = dict[str, dict[str, float]]


def read(path: Path) -> Errors:
    found: Errors = defaultdict(dict)
    for row in csv.DictReader(path.read_text().splitlines()):
        found[row["id"]][row["quantity"]] = float(row["log_error"])
    return dict(found)


def has_tables(p: points_of.Point) -> bool:
    """NVIDIA measured kernels of this GPU, or `mopt calibrate` ran on it."""
    return speed.table_of(points_of.gpus.find(p.gpu).name) is not None or p.source.startswith("ours")


def quantities(p: points_of.Point) -> tuple[str, ...]:
    return ("tpot", "throughput") if p.burst else ("tpot", "throughput", "ttft")


def medians(group: list[points_of.Point], errors: Errors) -> dict[str, tuple[int, float]]:
    """(rows, median size) of each quantity that a row of the group has."""
    sizes: dict[str, list[float]] = defaultdict(list)
    for p in group:
        for quantity in quantities(p):
            if quantity in errors.get(p.id, {}):
                sizes[quantity].append(abs(errors[p.id][quantity]))
    return {quantity: (len(values), median(values)) for quantity, values in sizes.items()}


def rank(group: list[points_of.Point], errors: Errors, quantity: str) -> float | None:
    """Spearman's correlation between configurations; None below ten of them."""
    chosen = [p for p in group if quantity in errors.get(p.id, {})]
    if len(chosen) < 10:
        return None
    truth = [getattr(p, quantity) for p in chosen]
    said = [t * math.exp(errors[p.id][quantity]) for t, p in zip(truth, chosen, strict=True)]
    return points_of.spearman(truth, said)


def groups(every: list[points_of.Point]) -> dict[str, list[points_of.Point]]:
    """Rows by whether the GPU has tables, the engine, and the kind of load."""
    found: dict[str, list[points_of.Point]] = defaultdict(list)
    for p in every:
        where = "tables or calibration" if has_tables(p) else "elsewhere"
        engine = "vLLM" if p.engine == "vllm" else "other engines"
        load = "burst" if p.burst else "closed and open loops"
        found[f"{where}, {engine}, {load}"].append(p)
        shared = p.id.startswith(("gps_", "ps_"))
        if shared:
            found[f"shared points, {where}, {load}"].append(p)
        if shared or p.source.startswith("ours"):
            found[f"shared points and our own, {where}, all loads"].append(p)
        found[f"all, {where}, all loads"].append(p)
    return dict(sorted(found.items()))


def line(name: str, group: list[points_of.Point], errors: Errors, *, limits: bool) -> str:
    cells = [name.ljust(50), str(len(group)).rjust(4)]
    aims = AIMED if any(has_tables(p) for p in group) else dict.fromkeys(AIMED, ELSEWHERE)
    found = medians(group, errors)
    for quantity, aim in aims.items():
        if quantity not in found:
            cells.append("-".rjust(22))
            continue
        count, size = found[quantity]
        order = rank(group, errors, quantity)
        mark = ("  " if size <= aim else " !") if limits else "  "
        shown = f"{order:.3f}" if order is not None else "  -  "
        cells.append(f"{size:7.1%}{mark} {shown} ({count})".rjust(22))
    return " ".join(cells)


def main() -> None:
    errors = read(Path(sys.argv[1]) if len(sys.argv) > 1 else ERRORS)
    every = [p for p in points_of.points() if p.id in errors]
    sure = [p for p in every if p.source not in points_of.DOUBTFUL]
    print("Median size of log(predicted / measured), Spearman's rank, (rows); `!` misses the aim:")
    print("12 % of time per token and throughput, 30 % of first tokens; 25 % where a GPU has no tables.")
    head = ["", "rows", *(f"{q}".rjust(22) for q in ("time per token", "throughput", "first token"))]
    print(head[0].ljust(50), head[1].rjust(4), *head[2:])
    for name, group in groups(sure).items():
        print(line(name, group, errors, limits=True))
    print("\nBy source:")
    for source in sorted({p.source for p in every}):
        print(line(source, [p for p in every if p.source == source], errors, limits=False))


if __name__ == "__main__":
    main()

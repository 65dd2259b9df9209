"""Layers that a checkpoint has in most places and lacks in some: a file was lost, or written only in part."""

import re
from collections import Counter
from collections.abc import Iterable

from model_optimizer.core import ModelSpec


def gaps(spec: ModelSpec, modules: Iterable[str]) -> list[str]:
    """`model.layers.*.mlp.down_proj: 5 of 6`, for every kind of layer that the architecture has more often.

    `modules` are the modules that hold a weight. What lies under other names altogether (stacked experts) is
    no gap, nor is what most layers lack.
    """
    there = Counter(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module) for module in modules)
    wanted: Counter[str] = Counter()
    for weight in spec.weights:
        if weight.name.endswith(".weight") and weight.role != "mtp":
            wanted[weight.name.removesuffix(".weight")] += weight.copies
    return [
        f"{kind}: {there[kind]:,} of {count:,}"
        for kind, count in wanted.items()
        if count <= 2 * there[kind] < 2 * count
    ]

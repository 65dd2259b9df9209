"""The layer `format`: a linter that reads a checkpoint as the engine will, before anything is loaded.

It needs no PyTorch and no weights: headers, descriptions, and the values of scales alone. Every rule is one
function that yields comparisons: a fault fails the layer, a remark decides nothing.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import Artifact, Comparison, Engine, ModelSpec, Scheme, Verdict, worst

from . import (
    format_checkpoint,
    format_claims,
    format_described,
    format_engine,
    format_files,
    format_scales,
    format_tensors,
)
from .format_engine import Target
from .judged import REPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """What is looked at. `spec` is None for an architecture that this product does not know.

    `scheme` is what the checkpoint is quantized to, None when that was not recognised.
    """

    artifact: Artifact
    spec: ModelSpec | None
    scheme: Scheme | None
    target: Target
    engines: Mapping[str, Engine]


def verify_format(lint: Lint) -> Verdict:
    """Every rule. UsageError for what is no checkpoint, is cut off, or is GGUF."""
    checkpoint = format_checkpoint.read(Path(lint.artifact.path))
    comparisons = tuple(_rules(lint, checkpoint))
    outcome = worst(tuple(c.outcome for c in comparisons))
    return Verdict(
        layer="format",
        subject=lint.artifact.path,
        outcome=outcome,
        comparisons=comparisons,
        because=_because(comparisons),
    )


def _rules(lint: Lint, checkpoint: format_checkpoint.Checkpoint) -> Iterator[Comparison]:
    claims = format_claims.read(checkpoint.keys, checkpoint.sidecar)
    layers = format_tensors.linear_layers(checkpoint, claims)
    known = claims is None or claims.known
    reader = format_engine.reader(lint.target, lint.engines)
    yield from itertools.chain(
        format_files.index(checkpoint),
        format_files.tokenizer(checkpoint),
        format_files.generation(checkpoint, lint.spec),
        format_files.size(checkpoint, claims, format_tensors.bytes_of_claimed(checkpoint, layers)),
        format_files.tied(checkpoint),
        format_described.described(checkpoint, claims),
        format_tensors.census(checkpoint, layers),
        format_tensors.summary(layers),
        format_tensors.whole(checkpoint, lint.spec),
    )
    if known:
        yield from itertools.chain(
            format_tensors.excluded(layers, claims),
            format_tensors.scales(layers),
            format_tensors.shapes(layers),
            format_tensors.fitting(layers, lint.spec),
            format_tensors.stacked(layers),
            format_tensors.cache_scales(checkpoint, claims),
        )
    yield from itertools.chain(
        format_scales.values(checkpoint),
        format_engine.description(claims, reader),
        format_engine.kernel(lint.artifact, claims, lint.scheme, reader, lint.target),
        format_engine.tiles(layers, lint.scheme, lint.target),
    )


def _because(comparisons: tuple[Comparison, ...]) -> str:
    bad = [c for c in comparisons if c.outcome == "fail"]
    open_ones = [c for c in comparisons if c.outcome == "undecided"]
    decided = sum(c.wanted != REPORTED for c in comparisons)
    if bad:
        return f"{len(bad)} of {decided} rules are broken; {bad[0].metric}: {bad[0].where}"
    if open_ones:
        return f"{open_ones[0].metric}: {open_ones[0].where}"
    return f"all {decided} rules hold"

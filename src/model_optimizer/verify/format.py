"""The layer `format`: a linter that reads a checkpoint as the engine will, before anything is loaded.

It needs no PyTorch: headers, descriptions, the values of scales, and a search for NaN in weights. Every rule
is one function that yields comparisons: a fault fails the layer, a remark decides nothing.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    format_values,
)
from .format_claims import Claims
from .format_engine import Target
from .judged import REPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """What is looked at. `spec` is None for an architecture that this product does not know.

    `scheme` is what the checkpoint is quantized to, None when that was not recognised or is several;
    `schemes` are those that are known, for layers of several.
    """

    artifact: Artifact
    spec: ModelSpec | None
    scheme: Scheme | None
    target: Target
    engines: Mapping[str, Engine]
    schemes: Mapping[str, Scheme] = field(default_factory=dict[str, Scheme])


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
    schemes = _schemes(lint, claims)
    reader = format_engine.reader(lint.target, lint.engines)
    yield from itertools.chain(
        format_files.index(checkpoint),
        format_files.tokenizer(checkpoint),
        format_files.vocabulary(checkpoint),
        format_files.generation(checkpoint, lint.spec),
        format_files.chat(checkpoint, lint.spec),
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
            format_values.order(checkpoint, layers),
            format_values.zeros(checkpoint, layers),
            format_values.merged(checkpoint, layers),
            format_values.sizes(checkpoint, layers),
            format_tensors.stacked(layers),
            format_tensors.cache_scales(checkpoint, claims),
        )
    yield from itertools.chain(
        format_tensors.fitting(checkpoint, layers, lint.spec),
        format_scales.values(checkpoint),
        format_values.finite(checkpoint),
        format_engine.release(reader),
        format_engine.description(claims, reader),
        format_engine.refusals(checkpoint, claims, reader),
        format_engine.kernel(lint.artifact, claims, schemes, reader, lint.target),
        format_engine.tiles(layers, schemes, lint.target),
    )


def _schemes(lint: Lint, claims: Claims | None) -> tuple[Scheme | None, ...]:
    """Those of all layers: one where the checkpoint has one, else one for each kind of layer."""
    if lint.scheme is not None or claims is None:
        return (lint.scheme,)
    names = dict.fromkeys(format_claims.scheme(kind) for kind in claims.kinds)
    return tuple(lint.schemes.get(name or "") for name in names)


def _because(comparisons: tuple[Comparison, ...]) -> str:
    bad = [c for c in comparisons if c.outcome == "fail"]
    open_ones = [c for c in comparisons if c.outcome == "undecided"]
    decided = sum(c.wanted != REPORTED for c in comparisons)
    if bad:
        return f"{len(bad)} of {decided} rules are broken; {bad[0].metric}: {bad[0].where}"
    if open_ones:
        return f"{open_ones[0].metric}: {open_ones[0].where}"
    return f"all {decided} rules hold"

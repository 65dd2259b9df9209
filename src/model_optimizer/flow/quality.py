"""Layer `quality` of one candidate: through the engine that will serve it, else in PyTorch.

A quantized checkpoint that no engine of this machine runs is expanded in PyTorch. That is said: it shows the
quality of its numbers, and nothing of the kernels that will compute them.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import (
    Artifact,
    Comparison,
    Engine,
    Host,
    HostError,
    Plan,
    Progress,
    Scheme,
    UsageError,
    Verdict,
    plugins,
)
from model_optimizer.serve import Wish, resolve
from model_optimizer.system import environments
from model_optimizer.verify import Endpoint, limits, quality, quality_retrieval, quality_tasks

from .verify import CHECKPOINTS, Case, Desk, verify_candidate

PYTORCH = "pytorch"
"""What to write for --engine to have the checkpoint expanded in PyTorch instead of served."""

LAYER_TEXTS = 8
LAYER_TOKENS = 128
"""Texts and tokens of each that errors are attributed to layers with: each layer runs over all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user asks of the layers `format` and `quality` beside texts.

    `gate` holds limits named by hand, `tasks` is a file of questions with choices. `free_tokens` is of layer
    `model`: how many tokens language models continue a text by themselves.

    `engine` is the one that shall run the candidate, None for whichever reads it; for layer `format` the one
    that will read it, on `gpu`, with each layer cut over `tensor_parallel` of them.
    """

    gate: Mapping[str, float] = field(default_factory=dict[str, float])
    tasks: Path | None = None
    engine: str | None = None
    gpu: str | None = None
    tensor_parallel: int = 1
    max_tokens: int = quality.MAX_TOKENS
    layers: bool = False
    sensitivity: bool = False
    free_tokens: int = limits.FREE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What discovery found, and the machine."""

    engines: Mapping[str, Engine]
    schemes: Mapping[str, Scheme]
    host: Host


def verify_quality(case: Case, wishes: Wishes, kit: Kit, desk: Desk, progress: Progress) -> Verdict:
    """The verdict; raises what `verify_candidate` raises, and UsageError for wishes that cannot be met."""
    extras = _extras(case, wishes, progress)
    wanted = wishes.layers or wishes.sensitivity
    by_layer = _layers(case, wishes, desk, progress) if wanted else ()  # refuses what it cannot read first
    served = case.served or _server(case.candidate, wishes, kit)
    asked = dataclasses.replace(
        case,
        gate=quality.changed(case.gate, wishes.gate),
        served=served,
        max_tokens=wishes.max_tokens,
        judge=functools.partial(quality.verify_quality, extras=extras),
    )
    verdict = verify_candidate(asked, desk, progress)
    if served is None and _is_quantized(case.candidate):
        said = "expanded in PyTorch, so that nothing is said of an engine's kernels"
        verdict = dataclasses.replace(verdict, because=f"{verdict.because}; {said}")
    elif served is not None and isinstance(case.candidate, Artifact):
        because = f"{verdict.because}; run by {served[1].TITLE}"
        verdict = dataclasses.replace(verdict, because=because, subject=case.candidate.path)
    return dataclasses.replace(verdict, comparisons=(*verdict.comparisons, *by_layer))


def _extras(case: Case, wishes: Wishes, progress: Progress) -> tuple[quality.Extra, ...]:
    if wishes.tasks is not None:
        if case.reference.task != "generate":
            raise UsageError("tasks with choices are for models that generate", hint=("leave --tasks out",))
        return (quality_tasks.extra(quality_tasks.read(wishes.tasks)),)
    if case.reference.task == "embed":
        found = quality_retrieval.extra(case.texts)
        if found is None:
            progress(f"no retrieval: it needs {quality_retrieval.FEWEST} pairs of query and document", None)
        return (found,) if found else ()
    return ()


def _is_quantized(candidate: Artifact | Endpoint) -> bool:
    return isinstance(candidate, Artifact) and candidate.format in CHECKPOINTS - {"safetensors"}


def _server(candidate: Artifact | Endpoint, wishes: Wishes, kit: Kit) -> tuple[Plan, Engine] | None:
    """How a quantized checkpoint is served here; None when nothing here serves it, or PyTorch is wanted."""
    if isinstance(candidate, Endpoint) or wishes.engine == PYTORCH:
        return None
    if wishes.engine is None and not _is_quantized(candidate):
        return None
    able = [
        name
        for name, engine in kit.engines.items()
        if candidate.scheme in engine.READS.get(candidate.format, ())
        and candidate.task in engine.TASKS
        and engine.DEVICES & (frozenset({"cpu", "gpu"}) if kit.host.gpus else frozenset({"cpu"}))
        and _is_there(engine.ENVIRONMENT)
    ]
    if wishes.engine is None and not able:
        return None
    wish = Wish(engine=wishes.engine or able[0], scheme=candidate.scheme, settings=_settings(wishes))
    order = resolve(candidate.path, wish, kit.host, engines=kit.engines, schemes=kit.schemes)
    return order.plan, kit.engines[order.plan.engine]


def _is_there(environment: str) -> bool:
    try:
        environments.interpreter(environment)
    except HostError:
        return False
    return True


def _settings(wishes: Wishes) -> dict[str, str]:
    """One token is generated behind every text."""
    return {"max_model_len": str(wishes.max_tokens + 8)}


def _layers(case: Case, wishes: Wishes, desk: Desk, progress: Progress) -> tuple[Comparison, ...]:
    if case.reference.task != "generate" or not isinstance(case.candidate, Artifact):
        raise UsageError(
            "errors are attributed to layers for checkpoints of models that generate",
            hint=("leave --sensitivity out",),
        )
    reader = plugins.load("model_optimizer.verify.readers", case.candidate.format)
    desk.scratch.mkdir(parents=True, exist_ok=True)
    samples = desk.scratch / "layers.jsonl"
    groups = case.texts.groups("generate")[:LAYER_TEXTS]
    samples.write_text("".join(json.dumps({"text": g[0].text}) + "\n" for g in groups), encoding="utf-8")
    request = {
        "reference": str(Path(case.reference.path).resolve()),
        "model": str(Path(case.candidate.path).resolve()),
        "samples": str(samples.resolve()),
        "max_tokens": LAYER_TOKENS,
        "sensitivity": wishes.sensitivity,
    }
    try:
        result = environments.run_worker(reader.ENVIRONMENT, "quality_layers", request, progress)
    finally:
        samples.unlink(missing_ok=True)
    return layer_comparisons(result)


def layer_comparisons(result: Mapping[str, Any]) -> tuple[Comparison, ...]:
    """What the worker found, as numbers to read: errors from the input on, then layers, the worst first."""
    rows = cast("Sequence[Mapping[str, Any]]", result["layers"])
    tokens = cast("int", result["tokens"])
    found = [
        _reported("layer_error", row["error"], tokens, cast("str", row["name"]))
        for row in rows
        if row["error"] is not None
    ]
    swapped = cast("Sequence[Mapping[str, Any]]", result.get("sensitivity", ()))
    found += [_reported("sensitivity", row["kl"], tokens, cast("str", row["name"])) for row in swapped]
    return tuple(found)


def _reported(metric: str, got: float, samples: int, where: str) -> Comparison:
    return Comparison(metric=metric, got=got, wanted="reported", outcome="pass", where=where, samples=samples)

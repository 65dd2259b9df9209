"""Step times of engines side by side that share their experts: attention repeated, experts spread."""

from collections.abc import Callable
from dataclasses import replace

from model_optimizer.core import UsageError
from model_optimizer.core.steps import StepModel
from model_optimizer.facts import speed
from model_optimizer.planner.speed import Roofline, Setup
from model_optimizer.planner.speed.links import exchanges


def grouped(setup: Setup, ranks: int, steps: Callable[[Setup], StepModel]) -> StepModel:
    """One of `ranks` engines in a step that all of them take together, each with as many tokens.

    Every GPU computes attention for its own tokens, and its share of the experts for everybody's. Tokens are
    gathered before the experts and summed after them (`links.gathered`, vLLM's default). UsageError where
    times are not those of the roofline.
    """
    alone = steps(replace(setup, tensor_parallel=1, expert_parallel=False))
    shared = steps(replace(setup, tensor_parallel=ranks, expert_parallel=True))
    if not isinstance(alone, Roofline) or not isinstance(shared, Roofline):
        raise UsageError("experts shared between engines are known to the roofline alone")
    mixtures = tuple(
        replace(one, moved=one.moved * ranks, computed=one.computed * ranks, spread=one.spread * ranks)
        for one in shared.mixtures
    )
    launch, token = exchanges(setup, ranks, speed.generation(setup.gpu.compute_capability or (0, 0)))
    return replace(
        alone,
        mixtures=mixtures,
        reduces=sum(one.shape.layers for one in mixtures),
        reduce_launch=launch,
        reduce_token=token,
        provenance=f"{alone.provenance}; experts shared by {ranks} engines, by arithmetic alone",
        known={},
    )

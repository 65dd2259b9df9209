"""How fast will it be: the question of `mopt estimate`."""

from dataclasses import dataclass
from typing import Literal

from .fit import FitQuestion
from .model import ModelSpec
from .workload import Workload

StepSource = Literal["auto", "roofline", "tables", "measured"]
DraftMethod = Literal["ngram", "draft", "eagle3", "mtp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationAsked:
    """`tokens` drafted a step; `acceptance` of each, None when nobody measured it. `model` is what drafts."""

    method: DraftMethod
    tokens: int
    acceptance: float | None = None
    model: ModelSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuestion:
    """`placed` is what is served where and how, as for `mopt fit`. `step_model` says where times come from:
    `auto` takes the user's measurements, then tables when they are at hand, then the roofline.
    `prefix_hit` is the share of prompt tokens that are found in the prefix cache. `images` stand in each
    prompt beside the tokens of `workload`, each of `image_size` (width, height).
    """

    placed: FitQuestion
    workload: Workload
    step_model: StepSource = "auto"
    expert_parallel: bool = False
    prefix_hit: float = 0.0
    speculation: SpeculationAsked | None = None
    images: int | None = None
    image_size: tuple[int, int] | None = None

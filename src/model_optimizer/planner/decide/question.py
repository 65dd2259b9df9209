"""What is asked of a plan, and the functions it is handed: memory, step times, service under load."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from model_optimizer.core import (
    Estimate,
    Fit,
    FitQuestion,
    GgufModel,
    GpuMemory,
    ModelSpec,
    Rejection,
    Scheme,
    Slo,
    Workload,
)
from model_optimizer.core.question import SpeculationAsked
from model_optimizer.core.site import GpuEngine, Site
from model_optimizer.core.steps import StepModel
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.prices import Prices
from model_optimizer.planner.service import Question as Service
from model_optimizer.planner.speed import Setup

PLAIN_VALUES = (str, int, float, bool, type(None), GpuMemory)
FitFunction = Callable[[FitQuestion], Fit]
StepsFunction = Callable[[Setup], StepModel]
EstimateFunction = Callable[[Service], Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """What the decision is handed, so that it can be tested without arithmetic of memory or time.

    `steps_required`: a candidate whose step times cannot be had is refused, not taken without a prediction.
    `networks` are the schemes in which the tools here make a network for TensorRT; None asks for none.
    """

    fit: FitFunction
    steps: StepsFunction
    estimate: EstimateFunction
    engines: Mapping[str, GpuEngine]
    schemes: Mapping[str, Scheme]
    steps_required: bool = False
    networks: Callable[[], frozenset[str]] | None = None


def remembering(fit: FitFunction) -> FitFunction:
    """The same, with answers to questions that were asked before: plans near each other ask the same ones.

    Models are told apart as objects, which the questions here keep alive.
    """
    known: dict[tuple[object, ...], tuple[FitQuestion, Fit]] = {}
    names = [one.name for one in fields(FitQuestion)]

    def ask(question: FitQuestion) -> Fit:
        values = [getattr(question, name) for name in names]
        asked = tuple(v if isinstance(v, PLAIN_VALUES) else id(v) for v in values)
        if asked not in known:
            known[asked] = question, fit(question)
        return known[asked][1]

    return ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user has decided already. None leaves it to the plan.

    `draft_model` is what drafts, as it is handed to the engine. `apis` are what clients need of the server,
    words of facts/decisions/apis.
    """

    engine: str | None = None
    version: str | None = None
    scheme: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    vram_bytes: int | None = None
    spares: int | None = None
    kv_offload_bytes: int = 0
    speculation: SpeculationAsked | None = None
    draft_model: str | None = None
    apis: frozenset[str] = frozenset()
    tools: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """The four constraints and what decides between engines.

    `gpus` is how many there are. `texts` is how many texts one request of an embedding model holds; lengths
    are of one text. `assumed` names what nobody said and a default stands for. `measured` maps
    (engine, scheme) to requests a second that were measured under this load. `host_memory_bytes` is what is
    available for layers on the CPU. `stretched` is the factor by
    which YaRN stretches the model's context, None for none. `image_room` are tokens of an image that the
    longest request has room for and the load does not hold. `image_operations` are what the encoder computes
    for the images of a prompt.
    """

    model: ModelSpec
    gguf: GgufModel | None = None
    checkpoint: str
    site: Site
    card: GpuMemory
    gpu: GpuFact
    gpus: int = 1
    host_digest: str | None = None
    host_memory_bytes: int | None = None
    workload: Workload
    slo: Slo
    wishes: Wishes = field(default_factory=Wishes)
    image_room: int = 0
    image_operations: float = 0.0
    texts: int = 1
    build_minutes: float = 0.0
    changes_per_month: float = 1.0
    assumed: Mapping[str, str] = field(default_factory=dict[str, str])
    prices: Prices | None = None
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    stretched: float | None = None

    @property
    def generates(self) -> bool:
        return self.model.task == "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class No:
    """Why a candidate was not taken, in words and as a number.

    `kind` is the constraint: a link of the chain, `number format`, `quality`, `memory`, a limit of the SLO,
    or `gpus`. `short` is how far off, in `unit`; `length` and `load` what would have been possible.
    `judged` is the candidate when it got as far as its load.
    """

    rejection: Rejection
    kind: str
    short: float | None = None
    unit: str | None = None
    length: int | None = None
    load: float | None = None
    judged: object | None = None

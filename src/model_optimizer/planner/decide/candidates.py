"""Every combination worth a look: engine and release, scheme, parallelism; and why others are not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from model_optimizer.core import ModelSpec, Rejection, Scheme, UsageError
from model_optimizer.core.site import Ability, Offer
from model_optimizer.facts import decisions
from model_optimizer.planner.memory import encoder

from .question import Functions, No, PlanQuestion

# Schemes that are tried for a checkpoint that is not quantized, the most precise first.
OPEN = ("bf16", "fp16", "fp8", "int8_weight", "int8", "awq_int4", "nvfp4", "int4_rtn")
BF16_FROM = (8, 0)
NETWORKS = frozenset({"tensorrt", "tensorrt_rtx"})
"""Engines that are built from an ONNX network, whose numbers are those of the engine."""
PLAIN = frozenset({"bf16", "fp16", "fp32"})
ONLINE = {"fp8": "fp8"}
"""Schemes that the engine makes of a 16-bit checkpoint while it loads, and its word for them."""
DTYPE_NAMES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One combination; `stages` is pipeline parallelism.

    `ranks` are engines side by side that share their experts: attention is repeated, experts are spread.
    """

    engine: str
    offer: Offer
    scheme: Scheme
    ability: Ability
    tensor: int = 1
    stages: int = 1
    experts: bool = False
    ranks: int = 1

    @property
    def gpus(self) -> int:
        """Of one engine."""
        return self.tensor * self.stages

    @property
    def whole(self) -> int:
        """GPUs of a replica: those of all engines that belong together."""
        return self.gpus * self.ranks

    @property
    def parallel(self) -> str:
        words = [f"TP{self.tensor}"] if self.tensor > 1 else []
        words += [f"PP{self.stages}"] if self.stages > 1 else []
        words += [f"DP{self.ranks}"] if self.ranks > 1 else []
        words += ["EP"] if self.experts else []
        return " ".join(words) or "1"


def enumerate_all(question: PlanQuestion, functions: Functions) -> tuple[list[Candidate], list[No]]:
    """What can run at all, before memory and load are looked at."""
    kept, rejected = list[Candidate](), list[No]()
    for name, engine in functions.engines.items():
        if question.wishes.engine and name != question.wishes.engine:
            continue
        if question.model.task not in engine.TASKS:
            reason = f"does not handle the task `{question.model.task}`"
            rejected.append(_no(name, "any", reason, f"engines/{name}", "task"))
            continue
        lacking = _lacking(question, name)
        if lacking is not None:
            rejected.append(lacking)
            continue
        offer = best_offer(question, functions, name)
        link = offer.broken
        if link is not None:
            rejected.append(_no(name, "any", f"{link.name}: {link.says}", link.source, link.name))
            continue
        schemes = tuple(_schemes(question, functions, name))
        if not schemes and question.wishes.engine:
            asked = question.wishes.scheme or own_scheme(question.model)
            reason = f"{engine.TITLE} takes no model in `{asked}`"
            rejected.append(_no(name, "any", reason, f"engines/{name}", "number format"))
        for scheme in schemes:
            ability = _with_dtype(question, engine.ability(scheme, question.site, offer.version))
            if name in NETWORKS and functions.networks and scheme.name not in functions.networks():
                reason = f"`mopt convert` makes no network in {scheme.name}"
                rejected.append(
                    _no(name, scheme.name, reason, "convert/, what each tool writes", "number format")
                )
                continue
            if ability.how == "no":
                rejected.append(_no(name, scheme.name, ability.because, ability.source, "number format"))
                continue
            for tensor, stages in _divisions(question, one=engine.ONE_PROCESS):
                kept.append(
                    Candidate(
                        engine=name,
                        offer=offer,
                        scheme=scheme,
                        ability=ability,
                        tensor=tensor,
                        stages=stages,
                        experts=needs_experts(question.model, scheme, tensor),
                    )
                )
            kept += [
                Candidate(engine=name, offer=offer, scheme=scheme, ability=ability, experts=True, ranks=ranks)
                for ranks in _ranks(question, name)
            ]
    return kept, rejected


def _ranks(question: PlanQuestion, engine: str) -> Iterator[int]:
    """Engines side by side that share experts. A latent KV cache is the same on every GPU of tensor
    parallelism; side by side, each engine keeps its own requests'. Only with links that carry the tokens."""
    model, wishes = question.model, question.wishes
    latent = any(group.kind == "mla" for group in model.groups)
    if engine != "vllm" or not latent or model.experts is None or not _linked(question):
        return
    if (wishes.tensor_parallel or 1) > 1 or (wishes.pipeline_parallel or 1) > 1 or wishes.speculation:
        return
    for ranks in (2, 4, 8, 16):
        if ranks <= question.gpus and wishes.data_parallel in (None, ranks):
            yield ranks


def _lacking(question: PlanQuestion, engine: str) -> No | None:
    """Whether clients need something that the engine's server does not have."""
    known = decisions.api(engine) if question.wishes.apis else None
    if known is None or question.wishes.apis <= set(known.offers):
        return None
    missing = ", ".join(sorted(question.wishes.apis - set(known.offers)))
    return _no(engine, "any", f"has no {missing} interface: {known.because}", known.source[0], "api")


def _with_dtype(question: PlanQuestion, ability: Ability) -> Ability:
    """The same, unless a computation in BF16 was asked for where there is none."""
    have = question.site.compute_capability
    if question.wishes.dtype != "bf16" or have is None or have >= BF16_FROM:
        return ability
    because = (
        f"BF16 needs compute capability 8.0, {question.site.gpu} has {have[0]}.{have[1]}; FP16 runs there"
    )
    return Ability(how="no", because=because, source="vllm platforms/cuda.py, check_if_supports_dtype")


def best_offer(question: PlanQuestion, functions: Functions, name: str) -> Offer:
    """The release asked for, else the newest whose chain holds, else the newest with what breaks."""
    engine, site = functions.engines[name], question.site
    if question.wishes.version:
        return engine.offer(question.model, site, question.wishes.version)
    newest: Offer | None = None
    for version in reversed(engine.versions()):
        offer = engine.offer(question.model, site, version)
        newest = newest or offer
        if offer.broken is None:
            return offer
        if site.unsupported or (site.compute_capability or (0, 0)) < (5, 0):
            break
    assert newest is not None
    return newest


def needs_experts(model: ModelSpec, scheme: Scheme, tensor: int) -> bool:
    """Whether experts must be spread whole: blocks of their scales would be cut by tensor parallelism."""
    if model.experts is None or tensor == 1 or scheme.name != "fp8_block" or not scheme.group_size:
        return False
    return model.experts.intermediate_size % (tensor * scheme.group_size) != 0


def own_scheme(model: ModelSpec) -> str | None:
    """The scheme that a checkpoint is stored in; None when it is not one of ours."""
    if model.quantization:
        return model.quantization.scheme
    return DTYPE_NAMES.get(model.dtype or "bf16")


def sees_images(question: PlanQuestion) -> bool:
    """Whether the language model has an encoder of images beside it."""
    return question.generates and encoder.reads_images(question.model)


def projector_of(question: PlanQuestion) -> str:
    """The file of the encoder for llama.cpp."""
    return f"./mmproj-{stem_of(question)}-F16.gguf"


def stem_of(question: PlanQuestion) -> str:
    """What files that are made of the model are named after."""
    return PurePath(question.model.name).name or "model"


def loads_as_it_is(model: ModelSpec, scheme: Scheme) -> bool:
    """Whether an engine that reads checkpoints needs no file that must be made first."""
    return scheme.name in PLAIN or scheme.name in ONLINE or scheme.name == own_scheme(model)


def _schemes(question: PlanQuestion, functions: Functions, engine: str) -> Iterator[Scheme]:
    reads = set[str]().union(*functions.engines[engine].READS.values())
    own, wished = own_scheme(question.model), question.wishes.scheme
    dtype = question.wishes.dtype
    if wished:
        names: tuple[str, ...] = (wished,)
    elif question.model.quantization:
        if own is None:
            method = question.model.quantization.method
            raise UsageError(
                f"`{question.model.name}` is stored in `{method}`, which is not a scheme known here",
                hint=("plan for the model that it was made from",),
            )
        names = (own,)
    else:
        names = tuple(n for n in OPEN if n not in PLAIN or n == (dtype or _sixteen(question)))
    if question.gguf is not None:
        names = tuple(reads & set(names)) or ("int4_rtn",)
    for name in names:
        if name in reads and name in functions.schemes:
            yield functions.schemes[name]


def _sixteen(question: PlanQuestion) -> str:
    """The 16-bit format to compute in: that of the checkpoint, FP16 where BF16 is not to be had."""
    capability = question.site.compute_capability or (0, 0)
    if own_scheme(question.model) == "fp16" or capability < BF16_FROM:
        return "fp16"
    return "bf16"


def _divisions(question: PlanQuestion, *, one: bool) -> Iterator[tuple[int, int]]:
    """(tensor, stages) whose product there are GPUs for; heads must divide."""
    wishes, model = question.wishes, question.model
    if one:
        if (wishes.tensor_parallel or 1) * (wishes.pipeline_parallel or 1) == 1:
            yield 1, 1
        return
    tensors = [wishes.tensor_parallel] if wishes.tensor_parallel else [1, 2, 4, 8, 16]
    stages = [wishes.pipeline_parallel] if wishes.pipeline_parallel else [1, 2, 4]
    for tensor in tensors:
        for stage in stages:
            if tensor * stage > question.gpus or model.heads % tensor:
                continue
            if stage > 1 and not wishes.pipeline_parallel and _linked(question) and tensor < 8:
                continue  # with NVLink, sharing layers is faster than passing them on
            yield tensor, stage


def _linked(question: PlanQuestion) -> bool:
    return bool(question.gpu.nvlink_bytes_per_s)


def _no(engine: str, scheme: str, reason: str, source: str, kind: str) -> No:
    return No(rejection=Rejection(engine=engine, scheme=scheme, reason=reason, source=source), kind=kind)

"""Models, GPUs and step models that the tests of speed share."""

from dataclasses import dataclass, field
from functools import cache

from model_optimizer.core import ModelSpec, Scheme, plugins
from model_optimizer.core.steps import Batch, StepTime
from model_optimizer.facts import gpus
from model_optimizer.planner.speed import Setup
from model_optimizer.system import models


@cache
def model(name: str = "Qwen/Qwen3-8B") -> ModelSpec:
    return models.read(name)


def scheme(name: str) -> Scheme:
    return plugins.load("model_optimizer.schemes", name).SCHEME


def setup(gpu: str = "h100", number: str = "bf16", name: str = "Qwen/Qwen3-8B", **more: object) -> Setup:
    more.setdefault("version", "0.30.0")
    return Setup(model=model(name), gpu=gpus.find(gpu), scheme=scheme(number), **more)  # pyright: ignore[reportArgumentType]


@dataclass
class Clock:
    """A step model that anyone can work out: a step takes `step` ms and `token` ms for each prompt token."""

    step: float = 10.0
    token: float = 0.1
    sequence: float = 0.0
    context: float = 0.0
    kind: str = "roofline"
    provenance: str = "a clock"
    asked: list[Batch] = field(default_factory=list)

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        return self.mixed_ms(Batch(tokens=tokens * sequences, chunks=sequences))

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.mixed_ms(Batch(sequences=sequences, context=context))

    def mixed_ms(self, batch: Batch) -> float:
        self.asked.append(batch)
        decode = batch.sequences * (self.sequence + self.context * batch.context)
        return self.step + decode + self.token * batch.tokens

    def explain(self, batch: Batch) -> StepTime:
        return StepTime(ms=self.mixed_ms(batch), parts={"compute": 1.0}, bound="compute")

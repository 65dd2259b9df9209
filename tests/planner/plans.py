"""Plans for tests, made with the real arithmetic from named models and GPUs."""

from functools import cache
from typing import Any

from model_optimizer import api
from model_optimizer.core import Lengths, Plan, ReadModel, Slo
from model_optimizer.flow import plan as asking
from model_optimizer.planner.decide import Functions, Wishes, decide


@cache
def functions() -> Functions:
    return asking.functions()


@cache
def read(model: str) -> ReadModel:
    return api.read_model(model)


def request(model: str, gpu: str, **asked: Any) -> asking.PlanRequest:
    """`p` and `o` are prompt and output tokens; names of Slo and Wishes go where they belong."""
    limits = {n: asked.pop(n) for n in ("ttft_ms", "tpot_ms", "e2e_ms", "quality") if n in asked}
    own = {n: asked.pop(n) for n in tuple(asked) if n in Wishes.__dataclass_fields__}
    lengths = {
        field: Lengths.fixed(asked.pop(short))
        for short, field in (("p", "prompt_tokens"), ("o", "output_tokens"))
        if short in asked
    }
    return asking.PlanRequest(
        model=read(model),
        checkpoint=model,
        gpu=gpu,
        slo=Slo(**limits),
        wishes=Wishes(**own),
        **lengths,
        **asked,
    )


def plan(model: str, gpu: str, *, near: bool = True, **asked: Any) -> Plan:
    made = request(model, gpu, **asked)
    if made.wishes.speculation is None and made.step_model == "auto":
        return decide(asking.question_of(made), functions(), nearest=near)
    return api.plan(made)


def reasons(found: Plan, engine: str, scheme: str | None = None) -> str:
    """All that was said against an engine, in one text."""
    return " | ".join(r.reason for r in found.rejected if r.engine == engine and scheme in (None, r.scheme))


def page(found: Plan, title: str) -> str:
    """One derivation as one text."""
    one = next(d for d in found.derivations if d.title == title)
    return " | ".join((one.constraint, one.formula, one.numbers, one.conclusion))

"""`mopt estimate`: memory says how much fits at once, speed how long a step takes, service what users see."""

from dataclasses import replace

from model_optimizer.core import Estimate
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.planner import service
from model_optimizer.planner.images import Images, encoded
from model_optimizer.planner.service import Question
from model_optimizer.planner.speed.roofline import sixteen_bit_rate

from .check import check_workload
from .desk import Desk
from .place import at_length, fitted_for, limits_of, setup_of
from .steps import marked, speculate, steps_of
from .words import image_notes, notes_of, settings_of

__all__ = ["Desk", "estimate"]


def estimate(question: EstimateQuestion, desk: Desk) -> Estimate:
    """What a load will see. UsageError for contradictions, NoFeasiblePlan when the engine would not start."""
    placed = question.placed
    images = Images(model=placed.model, count=question.images, size=question.image_size)
    work = replace(question.workload, prompt_tokens=images.prompts(question.workload.prompt_tokens))
    question = replace(question, workload=work)
    check_workload(question)
    if placed.engine == "llama.cpp":
        from . import llama

        return llama.estimate(question, desk, images)
    fitted = fitted_for(question, desk)
    setup = setup_of(question, desk, fitted)
    limits = limits_of(question, setup, fitted, at_length(question, desk, fitted))
    steps, more = speculate(question, setup, steps_of(question, setup, limits, desk), work)
    steps = encoded(
        steps,
        images.operations,
        work.prompt_tokens,
        gpu=setup.gpu,
        parts=placed.tensor_parallel,
        rate=sixteen_bit_rate,
    )
    return service.estimate(
        Question(
            steps=marked(steps, fitted),
            limits=limits,
            workload=work,
            replicas=placed.data_parallel,
            settings=settings_of(question, setup, fitted, limits),
            notes=(*notes_of(question, setup, fitted), *image_notes(images), *desk.notes, *more),
        )
    )

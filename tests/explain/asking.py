"""Short ways to ask."""

from model_optimizer.core.explanation import Explanation
from model_optimizer.explain import Question, explain
from model_optimizer.facts import gpus


def ask(
    thing: str, *, gpu: str | None = None, engine: str | None = None, driver: str | None = None
) -> Explanation:
    """What is said of a thing; `engine` is `vllm==0.25.1`."""
    name, _, version = (engine or "").partition("==")
    return explain(
        Question(
            thing=thing,
            gpu=gpus.find(gpu) if gpu else None,
            engine=name or None,
            version=version or None,
            driver=driver,
        )
    )


def said(found: Explanation, level: str) -> list[str]:
    """What the remarks of one level are about."""
    return [point.about for point in found.points if point.level == level]

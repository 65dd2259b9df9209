"""The decision: engine, release, scheme, parallelism, replicas and settings for four constraints."""

from .decide import decide
from .question import Functions, PlanQuestion, StepsFunction, Wishes

__all__ = ["Functions", "PlanQuestion", "StepsFunction", "Wishes", "decide"]

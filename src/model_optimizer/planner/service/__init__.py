"""From the time of a step to what the users of a service see: continuous batching under a load."""

from .estimate import Question, capacity, estimate
from .limits import Limits

__all__ = ["Limits", "Question", "capacity", "estimate"]

"""From hardware, model and need to plans. Arithmetic only: nothing here touches a machine."""

from .choose import Options, Question, options
from .pick import Pick, pick

__all__ = ["Options", "Pick", "Question", "options", "pick"]

"""What a flag, a metric, a scheme, a variable, a claim or a whole old command line means today."""

from .changes import changes
from .question import Question
from .run import explain

__all__ = ["Question", "changes", "explain"]

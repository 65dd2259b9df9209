"""What is the one cause in this log, how sure, what confirms it, what fixes it."""

from .run import Diagnosing, of_command, of_file, of_text
from .tool_errors import explained

__all__ = ["Diagnosing", "explained", "of_command", "of_file", "of_text"]

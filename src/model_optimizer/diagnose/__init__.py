"""What is the one cause in this log, how sure, what confirms it, what fixes it."""

from .run import Diagnosing, of_command, of_file, of_text

__all__ = ["Diagnosing", "of_command", "of_file", "of_text"]

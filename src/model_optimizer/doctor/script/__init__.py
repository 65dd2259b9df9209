"""A shell script that brings a machine from what the doctor found to ready. It is printed, never run."""

from .compose import compose, mends

__all__ = ["compose", "mends"]

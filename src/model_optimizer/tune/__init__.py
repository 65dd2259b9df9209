"""Which settings are best under the SLO: a search that few trials of a real engine must suffice for."""

from .run import Functions, Order, Outcome, TuneQuestion, tune

__all__ = ["Functions", "Order", "Outcome", "TuneQuestion", "tune"]

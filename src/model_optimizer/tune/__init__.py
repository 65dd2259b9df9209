"""Which settings are best under the SLO: a search that few trials of a real engine must suffice for."""

from .run import Functions, TuneQuestion, tune
from .second_look import Shared
from .turns import Budget, Order, Outcome

__all__ = ["Budget", "Functions", "Order", "Outcome", "Shared", "TuneQuestion", "tune"]

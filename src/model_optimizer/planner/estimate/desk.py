"""What an estimate is handed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model_optimizer.core import Fit, FitQuestion, Scheme

if TYPE_CHECKING:
    from model_optimizer.core.calibration import Calibration
    from model_optimizer.core.grid import GridRequest, StepGrid
    from model_optimizer.core.ledger import LedgerRow

FitFunction = Callable[[FitQuestion], Fit]
GridFunction = Callable[["GridRequest"], "StepGrid"]
LedgerFunction = Callable[[str, str], "Sequence[LedgerRow]"]
CalibrationFunction = Callable[[str], "Calibration | None"]


def _none(_gpu: str) -> "Calibration | None":
    return None


def _nothing(_gpu: str, _engine: str) -> "Sequence[LedgerRow]":
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """`scheme` is a number format by its name, UsageError for none of ours. `grid` is None where no tables
    are at hand, and `tables_because` says why. `ledger` reads the measurements of a GPU and an engine.
    `calibration` is what micro-benchmarks found on a GPU, None where none ran. `notes` collects what a
    reader must know.
    """

    fit: FitFunction
    scheme: Callable[[str], Scheme]
    ledger: LedgerFunction = _nothing
    grid: GridFunction | None = None
    tables_because: str | None = None
    calibration: CalibrationFunction = _none
    notes: list[str] = field(default_factory=list[str])

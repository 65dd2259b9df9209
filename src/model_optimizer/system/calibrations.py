"""The user's own calibrations: one file a GPU in the data folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from . import files

if TYPE_CHECKING:
    from model_optimizer.core.calibration import Calibration


def path(gpu: str) -> Path:
    """Where the calibration of a GPU is kept, by its full name in the facts."""
    name = "".join(c if c.isalnum() else "-" for c in gpu.lower())
    return files.data_home() / "calibrations" / f"{name}.json"


def read(gpu: str) -> "Calibration | None":
    """None when this GPU was not calibrated here. UsageError when the file is broken."""
    place = path(gpu)
    if not place.is_file():
        return None
    from model_optimizer.core import codec
    from model_optimizer.core.calibration import Calibration

    return codec.load(place, Calibration)


def write(calibration: "Calibration") -> Path:
    """Keep it; one of the same GPU from before is replaced."""
    from model_optimizer.core import codec

    place = path(calibration.gpu)
    files.write_atomic(place, codec.dumps(calibration))
    return place

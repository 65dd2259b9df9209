"""What the builder of an engine library can make for which GPU. One TOML file a library."""

from dataclasses import dataclass
from functools import cache

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = read.ROOT / "compatibility/engine_limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTarget:
    """One compute capability and the schemes that can be built for it; `because` says what it lacks."""

    compute_capability: tuple[int, int]
    schemes: tuple[str, ...]
    because: str | None = None

    @property
    def dotted(self) -> str:
        return f"{self.compute_capability[0]}.{self.compute_capability[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits(Fact):
    """`opset_to` is the newest ONNX opset that is read, None where it is not known."""

    library: str
    version: str
    date: str
    opset_to: int | None = None
    target: tuple[BuildTarget, ...] = ()

    def targets(self, scheme: str) -> tuple[BuildTarget, ...]:
        """Those that a scheme can be built for."""
        return tuple(found for found in self.target if scheme in found.schemes)


@cache
def limits(library: str) -> EngineLimits:
    """The limits of `tensorrt_rtx`."""
    return read.toml(_FOLDER / f"{library}.toml", EngineLimits)

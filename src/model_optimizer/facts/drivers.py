"""Which driver runs which CUDA: what each toolkit shipped with, and the rules that bridge versions.

The driver that a toolkit shipped with is not the least one it runs on: within one major version of
CUDA any driver from the minimum of that major will do (`minimum`).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key, numbers

_FOLDER: Path = read.ROOT / "compatibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaToolkit(Fact):
    """A release of CUDA, and the drivers it shipped with: None where they were not found."""

    cuda: str
    driver_linux: str | None = None
    driver_windows: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumDriver(Fact):
    """The oldest driver that runs programs built with any toolkit of one major version of CUDA."""

    cuda_major: int
    driver_linux: str
    driver_windows: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverBranch(Fact):
    """`end_of_life` is a month (2028-06). `kind`: long-term, production or new-feature."""

    branch: str
    kind: str
    end_of_life: str
    cuda_major: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRule(Fact):
    """One rule in words, with the names that checks look it up by.

    `oldest_driver` is the oldest branch that it helps, None where that was not found.
    """

    id: str
    rule: str
    applies_to: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    oldest_driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Fact):
    """GPUs whose PCI number (four hexadecimal digits) is at least `first_device`. `open_modules` says whether
    the open kernel modules are possible or required for them."""

    architecture: str
    first_device: str
    open_modules: Literal["possible", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the facts say of one Linux driver. `cuda_majors` are those that it runs without further help."""

    version: str
    branch: DriverBranch | None
    newest_cuda: CudaToolkit | None
    cuda_majors: tuple[int, ...]


def describe(version: str) -> Driver:
    """A driver by its version (580.95.05) or its branch (R580, which then stands for its last driver)."""
    number = version.strip().upper().removeprefix("R")
    head, *rest = numbers(number)
    row = next((b for b in branches() if b.branch == f"R{head}"), None)
    last = number if rest else f"{head}.999"
    return Driver(
        version=number,
        branch=row,
        newest_cuda=newest_cuda(last),
        cuda_majors=tuple(m.cuda_major for m in minimums() if runs(last, str(m.cuda_major))),
    )


@cache
def minimums() -> tuple[MinimumDriver, ...]:
    """The oldest driver of each major version of CUDA."""
    return read.toml_rows(_FOLDER / "drivers.toml", "minimum", MinimumDriver)


def toolkits() -> tuple[CudaToolkit, ...]:
    """All releases of CUDA, oldest first."""
    rows = read.toml_rows(_FOLDER / "cuda.toml", "toolkit", CudaToolkit)
    return tuple(sorted(rows, key=lambda row: key(row.cuda)))


def toolkit(cuda: str) -> CudaToolkit:
    """`12.8.1`, or the newest update of `12.8` (also for an update that is not known). Else UsageError."""
    wanted = numbers(cuda)
    for length in range(len(wanted), 0, -1):
        same = [t for t in toolkits() if numbers(t.cuda)[:length] == wanted[:length]]
        if same and (length > 1 or len(wanted) == 1):
            return same[-1]
    known = ", ".join(dict.fromkeys(".".join(t.cuda.split(".")[:2]) for t in toolkits()))
    raise UsageError(f"there is no CUDA {cuda} in the facts", hint=(f"known: {known}",))


def minimum(cuda: str) -> MinimumDriver:
    """The oldest driver for programs built with this CUDA (`12`, `12.8` or `12.8.1`)."""
    major = numbers(cuda)[0]
    rows = minimums()
    for row in rows:
        if row.cuda_major == major:
            return row
    known = ", ".join(str(row.cuda_major) for row in rows)
    raise UsageError(f"there is no minimum driver for CUDA {cuda} in the facts", hint=(f"known: {known}",))


def runs(driver: str, cuda: str) -> bool:
    """True when a Linux driver runs programs built with this CUDA, by the rule of one major version."""
    return key(driver) >= key(minimum(cuda).driver_linux)


def newest_cuda(driver: str) -> CudaToolkit | None:
    """The newest toolkit that shipped with this Linux driver or an older one: what `nvidia-smi` shows."""
    have = key(driver)
    fitting = [t for t in toolkits() if t.driver_linux and key(t.driver_linux) <= have]
    return max(fitting, key=lambda t: key(t.cuda), default=None)


def branches() -> tuple[DriverBranch, ...]:
    """The branches of data-centre drivers that are known, oldest first."""
    return read.toml_rows(_FOLDER / "drivers.toml", "branch", DriverBranch)


def branch(name: str) -> DriverBranch:
    """`R580`, `580` or a driver version of that branch. UsageError when it is not known."""
    number = numbers(name.strip().upper().removeprefix("R"))[0]
    for row in branches():
        if row.branch == f"R{number}":
            return row
    known = ", ".join(row.branch for row in branches())
    raise UsageError(f"there is no driver branch `{name}` in the facts", hint=(f"known: {known}",))


def rules() -> tuple[DriverRule, ...]:
    """Forward compatibility, kernel modules, containers and WSL, in words."""
    return read.toml_rows(_FOLDER / "drivers.toml", "rule", DriverRule)


def rule(name: str) -> DriverRule:
    """One rule by its id, for example `forward-compatibility`."""
    for row in rules():
        if row.id == name:
            return row
    raise UsageError(
        f"there is no rule `{name}` in the facts", hint=(f"known: {', '.join(r.id for r in rules())}",)
    )


@cache
def generations() -> tuple[Generation, ...]:
    """From old to new."""
    return read.toml_rows(_FOLDER / "drivers.toml", "generation", Generation)


def generation(device: str) -> Generation | None:
    """The generation of a PCI number (`28e0`); None when it is older than every one with open modules.

    ValueError when it is not a hexadecimal number.
    """
    number = int(device, 16)
    found = [row for row in generations() if int(row.first_device, 16) <= number]
    return found[-1] if found else None


def past_end_of_life(row: DriverBranch, day: str) -> bool:
    """Whether a branch ended in a month before that of `day` (2026-11-30)."""
    return row.end_of_life < day[:7]


def advised_branch(day: str | None, *, cuda_major: int | None = None) -> DriverBranch:
    """The branch to install: the oldest long-term one that is still served and runs the newest CUDA."""
    major = cuda_major or max(row.cuda_major for row in branches())
    fitting = [row for row in branches() if row.kind == "long-term" and row.cuda_major >= major]
    return next((row for row in fitting if day is None or not past_end_of_life(row, day)), fitting[-1])

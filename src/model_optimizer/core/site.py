"""Where a model is to run, and what an engine has to offer there: the chain of compatibility.

A release of an engine serves an architecture, comes with a CUDA, asks a driver for it, has code for some
compute capabilities, and computes some number formats on them. Each of these is a `Link`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .model import ModelSpec
from .plan import Link, Plan
from .scheme import Scheme

How = Literal["native", "weight-only", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One kind of GPU and the machine around it.

    `driver` is None when it is not known. `server` is True for GPUs of data centres, whose drivers take the
    libraries of forward compatibility; None when that is not known. `unsupported` says why nothing with CUDA
    runs on it.
    """

    gpu: str
    vendor: str = "NVIDIA"
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int = 0
    driver: str | None = None
    server: bool | None = None
    wsl: bool = False
    unsupported: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One release of an engine for one model on one site; it fits when no link is broken.

    `exact` is False when the facts know only a neighbour of the release that was asked for.
    """

    version: str
    exact: bool = True
    image: str | None = None
    cuda: str | None = None
    links: tuple[Link, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> Link | None:
        """The first link that does not hold."""
        return next((link for link in self.links if link.holds is False), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """How an engine computes a scheme on a GPU."""

    how: How
    because: str
    source: str


class GpuEngine(Protocol):
    """What a file in engines/ offers besides `core.Engine` when `plan` may choose it for a GPU.

    MEMORY names the rules of memory that `fit` knows and that stand in for the engine's own: equal to the
    engine's name where they are its own. ONE_PROCESS is True for engines that take a single GPU here.
    """

    TITLE: str
    READS: Mapping[str, frozenset[str]]
    TASKS: frozenset[str]
    ENVIRONMENT: str
    MEMORY: str
    ONE_PROCESS: bool

    def versions(self) -> tuple[str, ...]:
        """Known releases, oldest first."""
        ...

    def offer(self, model: ModelSpec, site: Site, version: str) -> Offer: ...

    def ability(self, scheme: Scheme, site: Site, version: str) -> Ability: ...

    def command(self, plan: Plan, port: int) -> tuple[str, ...]:
        """One replica on 127.0.0.1, without a container."""
        ...

    def container(self, plan: Plan, port: int) -> tuple[str, ...]:
        """The same in the plan's image."""
        ...

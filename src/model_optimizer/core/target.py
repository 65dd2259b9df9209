"""What somebody means to run, and what it asks of a machine: known before anything is downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one image or package asks for. None: not known.

    `cuda` is the version it is built with and `minimum_driver` the oldest Linux driver that runs it.
    `compute_capabilities` are those with code of their own; with `ptx` the last also serves newer GPUs.
    `exact` is False when the facts know only `nearest`, a release beside the one asked for.
    `python` is the range of versions (`>=3.11,<3.15`); `pins` are packages that it brings (torch, 2.14.0).
    """

    asked: str
    kind: Literal["image", "package"]
    product: str
    version: str | None = None
    exact: bool = True
    nearest: str | None = None
    cuda: str | None = None
    minimum_driver: str | None = None
    minimum_capability: tuple[int, int] | None = None
    maximum_capability: tuple[int, int] | None = None
    compute_capabilities: tuple[tuple[int, int], ...] | None = None
    ptx: bool = False
    python: str | None = None
    pins: Mapping[str, str] = field(default_factory=dict[str, str])
    platforms: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`asked` is what the user wrote; a Dockerfile has a need for each FROM and each pinned package.

    `unknown` are parts of it that the facts know nothing of.
    """

    asked: str
    needs: tuple[Need, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def images(self) -> tuple[Need, ...]:
        return tuple(need for need in self.needs if need.kind == "image")

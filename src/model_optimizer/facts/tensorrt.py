"""TensorRT and TensorRT for RTX: releases, and the rules that surprise people. One TOML file a release."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from model_optimizer.facts import read, releases
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import covers

_FOLDER = read.ROOT / "compatibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trtexec:
    """Options of trtexec that a release took away, turned into no-ops, and what to use instead."""

    removed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    use_instead: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtRelease(Fact):
    """One release, or a series up to `last` that behaves alike. None: not found.

    `cuda` are the versions there are packages for. `minimum_compute_capability` and
    `maximum_compute_capability` bound the GPUs; `compute_capabilities` lists them where a list was
    found. ONNX opsets from `onnx_opset_from` to `onnx_opset_to` are imported. `python_package` is what
    a plain pip install brings.
    """

    version: str
    last: str | None = None
    date: str
    cuda: tuple[str, ...] | None = None
    minimum_compute_capability: tuple[int, int] | None = None
    maximum_compute_capability: tuple[int, int] | None = None
    compute_capabilities: tuple[tuple[int, int], ...] | None = None
    onnx_opset_from: int | None = None
    onnx_opset_to: int | None = None
    python_package: str | None = None
    trtexec: Trtexec | None = None
    asked: str | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtRtxRelease(Fact):
    """One release of TensorRT for RTX. `precisions` has the least compute capability
    of each number format."""

    version: str
    last: str | None = None
    compute_capabilities: tuple[tuple[int, int], ...]
    platforms: tuple[str, ...]
    precisions: Mapping[str, tuple[int, int]]
    asked: str | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtRule(Fact):
    """One rule in words, by its id."""

    id: str
    rule: str


def release(version: str) -> TensorrtRelease:
    """The release or series that holds the version, else the nearest with `exact` False."""
    known = releases.paths("tensorrt")
    for path in known.values():
        row = read.toml(path, TensorrtRelease)
        if covers(row.version, row.last, version):
            return replace(row, asked=version)
    found = read.toml(releases.choose("TensorRT", version, known), TensorrtRelease)
    return replace(found, asked=version, exact=False)


def versions() -> tuple[str, ...]:
    """The known releases (a series by its first), oldest first; opens no file."""
    return tuple(releases.paths("tensorrt"))


def rtx_release(version: str) -> TensorrtRtxRelease:
    """A release of TensorRT for RTX, else the nearest known one with `exact` False."""
    path = releases.choose("TensorRT for RTX", version, releases.paths("tensorrt_rtx"))
    found = read.toml(path, TensorrtRtxRelease)
    return replace(found, asked=version, exact=covers(found.version, found.last, version))


def rtx_versions() -> tuple[str, ...]:
    """The known releases of TensorRT for RTX, oldest first."""
    return tuple(releases.paths("tensorrt_rtx"))


@cache
def rules() -> tuple[TensorrtRule, ...]:
    """What holds for all releases: portability of engines, packages, INT8 without calibration."""
    return read.toml_rows(_FOLDER / "tensorrt_rules.toml", "rule", TensorrtRule)

"""TensorRT-LLM releases. One TOML file a release or series."""

from dataclasses import dataclass, replace
from functools import cache

from model_optimizer.facts import read, releases
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import covers

_FOLDER = read.ROOT / "compatibility"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtLlmRelease(Fact):
    """One release, or a series up to `last`. `tensorrt` is None when it was not found, and `none` when
    the release no longer depends on TensorRT. `backends` stand with the default first: `pytorch`,
    `tensorrt` (engines built with trtllm-build). `gpus` says in words what runs.
    """

    version: str
    last: str | None = None
    date: str
    torch: str | None = None
    cuda: str | None = None
    tensorrt: str | None = None
    backends: tuple[str, ...]
    gpus: str
    asked: str | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtLlmRule(Fact):
    """One rule in words, by its id."""

    id: str
    rule: str


def release(version: str) -> TensorrtLlmRelease:
    """The release or series that holds the version, else the nearest with `exact` False."""
    known = releases.paths("tensorrt_llm")
    for path in known.values():
        row = read.toml(path, TensorrtLlmRelease)
        if covers(row.version, row.last, version):
            return replace(row, asked=version)
    found = read.toml(releases.choose("TensorRT-LLM", version, known), TensorrtLlmRelease)
    return replace(found, asked=version, exact=False)


def versions() -> tuple[str, ...]:
    """The known releases (a series by its first), oldest first; opens no file."""
    return tuple(releases.paths("tensorrt_llm"))


@cache
def rules() -> tuple[TensorrtLlmRule, ...]:
    """What holds for all releases."""
    return read.toml_rows(_FOLDER / "tensorrt_llm_rules.toml", "rule", TensorrtLlmRule)

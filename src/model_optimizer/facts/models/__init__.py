"""Shapes of published models, for planning without a network. One JSON file a model in this folder.

A file is called `<organisation>--<name>.json`, so a lookup opens one file. `aliases.toml` holds other
ids of the same shape: names on ModelScope, and fine-tuned models of a base that is here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from model_optimizer.core import UsageError
from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact

_FOLDER = Path(__file__).parent
_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFact(Fact):
    """`config` has the keys of config.json as the hub has them.

    `provenance`: read from a copy of the published file, or put together from documentation. `parts`
    is `text` when a multimodal model is described by its language model only, whose keys then stand
    at the top of `config`. `like` is the id of the row that an alias took its shape from.
    """

    id: str
    provenance: Literal["published config", "documentation"]
    parts: Literal["all", "text"] = "all"
    like: str | None = None
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAlias(Fact):
    """Another id of the same shape. `config` holds the keys that differ."""

    id: str
    like: str
    config: Mapping[str, object] = field(default_factory=dict[str, object])


def find(model: str) -> Mapping[str, object] | None:
    """The config.json of a known model, or None. Reads one file; see `fact` for where it is from."""
    found = fact(model)
    return found.config if found else None


def fact(model: str) -> ModelFact | None:
    """The row of a hub or ModelScope id; letter case is forgiven. None when the id is not known.

    A name without an organisation (`qwen3-8b`) is found when only one model has it.
    """
    if not _ID.fullmatch(model):
        return None
    path = _path(model)
    if path is not None:
        return read.json(path, ModelFact)
    for alias in aliases():
        if alias.id.lower() == model.lower():
            return _through(alias)
    return None


def get(model: str) -> ModelFact:
    """Like `fact`, but UsageError with the nearest ids when the model is not known."""
    found = fact(model)
    if found is not None:
        return found
    from difflib import get_close_matches

    known = {i.lower(): i for i in (*ids(), *(a.id for a in aliases()))}
    short = {i.rpartition("/")[2]: i for i in known}
    wanted = model.lower()
    near = get_close_matches(wanted, known, n=3) or [
        short[s] for s in get_close_matches(wanted.rpartition("/")[2], short, n=3)
    ]
    hint = (f"nearest: {', '.join(known[n] for n in near)}",) if near else ()
    raise UsageError(
        f"there is no model `{model}` in the facts", hint=(*hint, "`mopt facts model` lists them all")
    )


def ids() -> tuple[str, ...]:
    """The ids of all models, sorted; opens no file. Aliases are not among them."""
    return tuple(sorted(_id_of(path) for path in _FOLDER.glob("*--*.json")))


def aliases() -> tuple[ModelAlias, ...]:
    """All other ids of the same shapes."""
    return read.toml_rows(_FOLDER / "aliases.toml", "alias", ModelAlias)


def _path(model: str) -> Path | None:
    exact = _FOLDER / f"{model.replace('/', '--')}.json"
    if "/" in model and exact.is_file():
        return exact
    wanted = model.lower()
    same = [i for i in ids() if wanted == i.lower() or wanted == i.rpartition("/")[2].lower()]
    return _FOLDER / f"{same[0].replace('/', '--')}.json" if len(same) == 1 else None


def _through(alias: ModelAlias) -> ModelFact:
    base = get(alias.like)
    return ModelFact(
        id=alias.id,
        provenance=base.provenance,
        parts=base.parts,
        like=base.id,
        config={**base.config, **alias.config},
        source=(*alias.source, *base.source),
        checked=alias.checked and base.checked,
        confidence=alias.confidence if alias.confidence != "high" else base.confidence,
        notes=(*alias.notes, *base.notes),
    )


def _id_of(path: Path) -> str:
    return path.stem.replace("--", "/", 1)

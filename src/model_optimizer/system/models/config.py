"""Access to the keys of one config.json that remembers what was missing or wrong.

A family asks for what it needs; at the end every missing and every wrong field is named in one error.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from model_optimizer.core import UsageError

LARGEST = 2**40
MOST_LAYERS = 10_000
LARGEST_FILE = 32 * 2**20


class Config:
    """The keys of a config.json, those of `text_config` merged over the outer ones.

    `condensed` marks a row of the built-in table, which leaves out keys that are null: there a missing
    key means null, whereas in a file it means the default of the architecture.
    """

    def __init__(
        self, keys: Mapping[str, object], *, name: str = "config.json", condensed: bool = False
    ) -> None:
        inner = keys.get("text_config") or keys.get("llm_config") or {}
        self.outer = keys
        self.keys: dict[str, object] = {
            **keys,
            **(cast("dict[str, object]", inner) if isinstance(inner, dict) else {}),
        }
        self.name = name
        self.condensed = condensed
        self.missing: list[str] = []
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self.reads_per_layer = False

    @property
    def model_type(self) -> str:
        """That of the outermost config: it names the architecture as a whole."""
        found = self.outer.get("model_type")
        return found if isinstance(found, str) else ""

    @property
    def architecture(self) -> str:
        found = self.outer.get("architectures") or self.keys.get("architectures")
        first = found[0] if isinstance(found, list) and found else None
        return first if isinstance(first, str) else ""

    def need(self, *names: str) -> int:
        """A whole number above zero under the first of these names that is there; noted as missing otherwise.

        The 1 that stands in for a missing number is never used: `require_complete` raises.
        """
        before = len(self.wrong)
        found = self.whole(*names)
        if len(self.wrong) > before:
            return 1
        if found is None:
            self.missing.append(" or ".join(f"`{name}`" for name in names))
            return 1
        if found == 0:
            self.wrong.append(f"`{names[0]}` is 0")
            return 1
        return found

    def whole(self, *names: str, default: int | None = None, condensed: int | None = None) -> int | None:
        """A whole number of at least 0. Absent: `default` (in the table `condensed`); null is None."""
        for name in names:
            if name not in self.keys:
                continue
            value = self.keys[name]
            if value is None:
                return None
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
                self.wrong.append(f"`{name}` is {_shown(value)}, not a whole number from 0 up")
                return None
            return value
        return condensed if self.condensed else default

    def count(self, *names: str, default: int = 0) -> int:
        """As `whole`, with a number also for null and in the built-in table."""
        found = self.whole(*names, default=default, condensed=default)
        return default if found is None else found

    def fill(self, **defaults: int) -> None:
        """What a file may leave out because it is the architecture's default (transformers 5.24).

        transformers leaves such keys out when it writes config.json. A row of the table is not filled.
        """
        for name, value in defaults.items():
            if not self.condensed:
                self.keys.setdefault(name, value)

    def layers(self, *names: str) -> int:
        found = self.need(*(names or ("num_hidden_layers",)))
        if found > MOST_LAYERS:
            self.wrong.append(f"{found} layers are more than any model has")
            return 1
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.keys.get(name, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong.append(f"`{name}` is {_shown(value)}, not true or false")
            return default
        return value

    def text(self, name: str) -> str | None:
        value = self.keys.get(name)
        return value if isinstance(value, str) else None

    def names(self, name: str) -> list[str] | None:
        """A list of words, None when it is absent."""
        value = self.keys.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.wrong.append(f"`{name}` is not a list of words")
            return None
        return cast("list[str]", value)

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, empty when it is absent."""
        value = self.keys.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) for n in value
        ):
            self.wrong.append(f"`{name}` is not a list of whole numbers")
            return []
        return cast("list[int]", value)

    def inner(self, name: str) -> "Config | None":
        """A config inside this one, such as `vision_config`; None when it is absent."""
        value = self.outer.get(name)
        if not isinstance(value, dict):
            return None
        return Config(
            cast("dict[str, object]", value), name=f"{name} of {self.name}", condensed=self.condensed
        )

    def layer_kinds(self, layers: int, name: str = "layer_types") -> dict[str, int] | None:
        """Layers by kind, in the order of first appearance. The table writes counts, a file one a layer."""
        value = self.keys.get(name)
        if isinstance(value, dict) and all(_is_count(n) for n in value.values()):
            counts = cast("dict[str, int]", dict(value))
        else:
            kinds = self.names(name)
            if kinds is None:
                return None
            counts = dict(Counter(kinds))
        if sum(counts.values()) != layers:
            self.contradiction(f"`{name}` names {sum(counts.values())} layers, and there are {layers}")
        return counts

    def per_layer(self) -> dict[str, dict[str, int]]:
        """`per_layer_config`, where transformers 5 writes what single layers have of their own."""
        self.reads_per_layer = True
        value = self.keys.get("per_layer_config")
        if not value:
            return {}
        entries = value if isinstance(value, dict) else {}
        found = {
            str(layer): {str(k): n for k, n in entry.items() if isinstance(n, int) and n > 0}
            for layer, entry in entries.items()
            if isinstance(entry, dict)
        }
        if not found or any(len(found[str(k)]) != len(e) for k, e in entries.items() if isinstance(e, dict)):
            self.wrong.append("`per_layer_config` is not an object of whole numbers by layer")
        return found

    def contradiction(self, what: str) -> None:
        """Two values that do not go together; said only when every single one was there."""
        if not self.missing and not self.wrong:
            self.wrong.append(what)

    def misunderstood(self, what: str) -> None:
        """A family met a value that it does not know."""
        self.wrong.append(what)

    def require_complete(self) -> None:
        """UsageError that names every missing and every wrong field, when there are any."""
        if self.keys.get("per_layer_config") and not self.reads_per_layer:
            self.wrong.append("`per_layer_config`: layers of different sizes")
        if not self.missing and not self.wrong:
            return
        cause = [f"missing: {', '.join(dict.fromkeys(self.missing))}"] if self.missing else []
        cause += [f"not understood: {what}" for what in dict.fromkeys(self.wrong)]
        raise UsageError(
            f"`{self.name}` does not describe a {self.model_type} model completely",
            cause=tuple(cause),
            hint=("take config.json from the model's own repository, unchanged",),
            reference="model-config",
        )


def parse(content: bytes, name: str, *, largest: int = LARGEST_FILE) -> dict[str, object]:
    """The keys of a JSON file. UsageError when it is none, or holds NaN where a number should be."""

    def constant(word: str) -> float:
        if word == "NaN":
            raise ValueError("it holds NaN, which is not a number")
        return math.inf if word == "Infinity" else -math.inf

    try:
        if len(content) > largest:
            raise ValueError(f"it has more than {largest} bytes, which no such file has")
        keys = json.loads(content.decode("utf-8-sig"), parse_constant=constant)
        if not isinstance(keys, dict):
            raise ValueError("it is not an object of keys and values")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"`{name}` is not valid JSON",
            cause=("it is nested too deeply" if isinstance(error, RecursionError) else str(error),),
            hint=("download the file again, or mend it",),
            reference="model-config",
        ) from None
    return cast("dict[str, object]", keys)


def read(path: Path, *, largest: int = LARGEST_FILE) -> dict[str, object]:
    """The keys of a file. UsageError when it cannot be read or is not JSON."""
    try:
        if not path.is_file() and path.exists():  # a pipe would be waited for
            raise UsageError(f"`{path}` is no file", reference="model-config")
        with path.open("rb") as stream:
            content = stream.read(largest + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
    return parse(content, str(path), largest=largest)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_LAYERS


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

"""What each release of compressed-tensors understands of a checkpoint's description. One row a change."""

from dataclasses import dataclass
from functools import cache

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FILE = read.ROOT / "compatibility" / "compressed_tensors.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedTensors(Fact):
    """From release `since` on. `arguments` are the keys of `weights` and `input_activations`, `formats` the
    values of `format`; a `strict` release refuses other keys, an earlier one ignores them."""

    since: str
    strict: bool
    arguments: tuple[str, ...]
    formats: tuple[str, ...]


@cache
def releases() -> tuple[CompressedTensors, ...]:
    """The rows, oldest first."""
    rows = read.toml_rows(_FILE, "release", CompressedTensors)
    return tuple(sorted(rows, key=lambda row: key(row.since)))


def understood(version: str) -> CompressedTensors | None:
    """What a release understands; None before the first row."""
    return max(
        (row for row in releases() if key(row.since) <= key(version)),
        key=lambda row: key(row.since),
        default=None,
    )

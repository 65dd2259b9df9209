"""What engines call their counters on `/metrics`, and which kernel messages end a run.

A quantity of ours (`kv_usage`, `running`, `waiting`) has several names, one for each engine and stretch of
releases. A reader takes those that it finds; the release only says which ones to expect.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from model_optimizer.facts import read
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

_FOLDER = read.ROOT / "metrics"

Kind = Literal["gauge", "counter", "histogram"]
Quantity = Literal[
    "kv_usage", "running", "waiting", "preemptions", "prompt_tokens", "output_tokens", "prefix_hits",
    "prefix_queries", "prefix_hit_rate", "queue_s", "ttft_s", "tpot_s", "e2e_s", "requests",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Fact):
    """`name` as it is written on the page, without `_total`, `_sum` or `_count`.

    `since` and `until` are the first and last release that have it, None where there is no such limit.
    """

    name: str
    quantity: Quantity
    kind: Kind
    since: str | None = None
    until: str | None = None

    def holds_in(self, version: str | None) -> bool:
        """Whether a release has it; True when no release is named."""
        if version is None:
            return True
        after = self.since is None or key(self.since) <= key(version)
        return after and (self.until is None or key(version) <= key(self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Fact):
    """Where an engine writes them: `path` on its own port, what the names begin with, and what has to be
    said at its start to have them at all (None when nothing)."""

    path: str
    prefix: str
    enabled_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid(Fact):
    """One number of the driver's `NVRM: Xid` lines. After a `fatal` one nothing measured counts."""

    number: int
    means: str
    fatal: bool


@cache
def engines() -> tuple[str, ...]:
    """The engines whose metrics are known."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.toml") if p.stem != "xids"))


@cache
def of(engine: str) -> tuple[Metric, ...]:
    """All names of one engine, of all its releases."""
    return read.toml_rows(_FOLDER / f"{engine}.toml", "metric", Metric)


@cache
def pages(engine: str) -> tuple[Page, ...]:
    """The paths to try, in this order."""
    return read.toml_rows(_FOLDER / f"{engine}.toml", "page", Page)


@cache
def xids() -> dict[int, Xid]:
    """The kernel messages that are known, by number."""
    return {row.number: row for row in read.toml_rows(_FOLDER / "xids.toml", "xid", Xid)}

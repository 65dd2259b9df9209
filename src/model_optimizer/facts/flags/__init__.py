"""What each release of an engine's command takes: options, environment variables, metric names.

One JSON file a release in a folder a program, made by `tools/flags_from_vllm.py` and its sisters from the
release's own sources. A file holds only the difference to the release before it. `meanings/` says in words
what the names stand for; `facts.vllm` has the notes that the planner relies on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from model_optimizer.facts import read, releases
from model_optimizer.facts.fact import Fact
from model_optimizer.facts.versions import key

Section = Literal["options", "variables", "metrics"]
SECTIONS: tuple[Section, ...] = ("options", "variables", "metrics")
_FOLDER = Path(__file__).parent
_SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_created")
"""What Prometheus adds to the name of a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One name in one release. `default` is as a user would write it, `none` for not set, None for not read.

    `takes` is `switch`, `value` or `list`; `also` are other spellings; `group` is the engine's own name for
    the settings it belongs to; `metric` is `gauge`, `counter` or `histogram`. `help` is the engine's own
    text, and only there where the row was read from an installed engine.
    """

    takes: Literal["switch", "value", "list"] | None = None
    default: str | None = None
    choices: tuple[str, ...] = ()
    group: str | None = None
    also: tuple[str, ...] = ()
    deprecated: bool = False
    metric: str | None = None
    checked: bool = True
    help: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What a release no longer has."""

    options: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Fact):
    """One file: what a release adds, changes and takes away from the one called `after`."""

    engine: str
    version: str
    after: str | None = None
    options: Mapping[str, Row] = field(default_factory=dict[str, Row])
    variables: Mapping[str, Row] = field(default_factory=dict[str, Row])
    metrics: Mapping[str, Row] = field(default_factory=dict[str, Row])
    gone: Gone = field(default_factory=Gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All that one release takes. `learned` marks one that was read from an installed engine."""

    engine: str
    version: str
    source: tuple[str, ...]
    options: Mapping[str, Row] = field(default_factory=dict[str, Row])
    variables: Mapping[str, Row] = field(default_factory=dict[str, Row])
    metrics: Mapping[str, Row] = field(default_factory=dict[str, Row])
    learned: bool = False

    def section(self, name: Section) -> Mapping[str, Row]:
        return {"options": self.options, "variables": self.variables, "metrics": self.metrics}[name]

    def option(self, word: str) -> tuple[str, Row] | None:
        """An option by any spelling: `-tp`, `--max_model_len`, `--no-enable-prefix-caching`."""
        for name in spellings(word.partition(".")[0]):
            if name in self.options:
                return name, self.options[name]
        other = _also(self.engine).get(word)
        if self.learned:
            other = next((name for name, row in self.options.items() if word in row.also), None)
        if other is not None and other in self.options:
            return other, self.options[other]
        if (
            word.startswith("--no-")
            and (found := self.option(f"--{word[5:]}"))
            and found[1].takes == "switch"
        ):
            return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of releases, both ends included, in which a name looks the same."""

    since: str
    until: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning(Fact):
    """What a name stands for, in our words. `watch` is what goes wrong with it.

    `to` are the words that take its place in a release that no longer has it, with `{value}` for what it was
    given; an empty one means that it is left out. `by_value` has other words for single values.
    `because` says why. `speed` says how a change of it shows.
    """

    name: str
    means: str
    watch: tuple[str, ...] = ()
    to: tuple[str, ...] | None = None
    by_value: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    because: str | None = None
    speed: str | None = None


def engines() -> tuple[str, ...]:
    """The programs with tables; opens no file."""
    return tuple(sorted(path.name for path in _FOLDER.iterdir() if any(path.glob("*.json"))))


def versions(engine: str) -> tuple[str, ...]:
    """The releases that were read, oldest first; opens no file."""
    return tuple(sorted((path.stem for path in (_FOLDER / engine).glob("*.json")), key=key))


def table(engine: str, version: str | None = None) -> Table:
    """What a release takes, the newest when none is named, else the nearest known one.

    UsageError when it is older than every known release.
    """
    known = versions(engine)
    if version is None:
        return _tables(engine)[known[-1]]
    paths = {v: _FOLDER / engine / f"{v}.json" for v in known}
    return _tables(engine)[releases.choose(engine, version, paths).stem]


def spans(engine: str, section: Section, name: str) -> tuple[Span, ...]:
    """The history of a name: one span for each stretch without a change, () when no release has it."""
    found: list[Span] = []
    before: Row | None = None
    for version, whole in _tables(engine).items():
        row = whole.section(section).get(name)
        if row is not None and row == before:
            found[-1] = Span(since=found[-1].since, until=version, row=row)
        elif row is not None:
            found.append(Span(since=version, until=version, row=row))
        before = row
    return tuple(found)


@cache
def every_name(engine: str, section: Section) -> Mapping[str, str]:
    """Every name of any release, with the last release that has it."""
    found: dict[str, str] = {}
    for version, whole in _tables(engine).items():
        found |= dict.fromkeys(whole.section(section), version)
    return found


def find(word: str, section: Section, engine: str) -> str | None:
    """The name that a spelling stands for in any release of an engine."""
    known = every_name(engine, section)
    wanted = [n for n in (spellings(word) if section == "options" else bases(word)) if n in known]
    if wanted:
        return max(wanted, key=lambda name: key(known[name]))  # of equal ones the first
    if section != "options":
        return None
    known_also = _also(engine)
    if word in known_also:
        return known_also[word]
    positive = find(f"--{word[5:]}", section, engine) if word.startswith("--no-") else None
    if positive and spans(engine, section, positive)[-1].row.takes == "switch":
        return positive
    return find(word.partition(".")[0], section, engine) if "." in word else None


@cache
def _also(engine: str) -> Mapping[str, str]:
    """The options of any release by their other spellings."""
    tables = _tables(engine).values()
    return {also: name for table in tables for name, row in table.options.items() for also in row.also}


def spellings(word: str) -> tuple[str, ...]:
    """`--max_model_len` and `max-model-len` may mean `--max-model-len`."""
    bare = word.lstrip("-")
    return tuple(
        dict.fromkeys((word, f"--{bare}", f"--{bare.replace('_', '-')}", f"--{bare.replace('-', '_')}"))
    )


def bases(metric: str) -> tuple[str, ...]:
    """`vllm:x_seconds_bucket` is a series of `vllm:x_seconds`."""
    cut = [metric.removesuffix(suffix) for suffix in _SUFFIXES if metric.endswith(suffix)]
    return (metric, *cut, f"{metric}_total")


@cache
def meanings(engine: str) -> Mapping[str, Meaning]:
    """What is said in words of an engine's names; {} where there is no file."""
    path = _FOLDER / "meanings" / f"{engine}.toml"
    rows = read.toml_rows(path, "meaning", Meaning) if path.exists() else ()
    return {row.name: row for row in rows}


@cache
def _tables(engine: str) -> dict[str, Table]:
    """Every release in full, oldest first, put together from the differences."""
    found: dict[str, Table] = {}
    options: dict[str, Row] = {}
    variables: dict[str, Row] = {}
    metrics: dict[str, Row] = {}
    for version in versions(engine):
        step = read.json(_FOLDER / engine / f"{version}.json", Difference)
        options = _applied(options, step.options, step.gone.options)
        variables = _applied(variables, step.variables, step.gone.variables)
        metrics = _applied(metrics, step.metrics, step.gone.metrics)
        found[version] = Table(
            engine=engine,
            version=version,
            source=step.source,
            options=options,
            variables=variables,
            metrics=metrics,
        )
    return found


def _applied(before: Mapping[str, Row], changed: Mapping[str, Row], gone: tuple[str, ...]) -> dict[str, Row]:
    return {name: row for name, row in before.items() if name not in gone} | dict(changed)

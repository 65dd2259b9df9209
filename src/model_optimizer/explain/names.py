"""Options, metrics and environment variables of engines: since when, until when, their defaults, what for."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from model_optimizer.core.explanation import Explanation, Kind, Point, Stretch
from model_optimizer.facts import flags, glossary, vllm
from model_optimizer.facts.flags import Meaning, Section, Table
from model_optimizer.facts.versions import key

from . import machine
from .question import Question

TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtexec": "trtexec",
    "trtllm_serve": "trtllm-serve",
    "trtllm_build": "trtllm-build",
}
"""The programs with tables, in the order in which a name is looked for."""
KINDS: dict[Section, Kind] = {"options": "option", "variables": "variable", "metrics": "metric"}
MOST_CHOICES = 40


def programs(engine: str | None) -> tuple[str, ...]:
    """The tables of an engine by any of its names; all of them when None."""
    if engine is None:
        return tuple(TITLES)
    name = engine.lower().replace("-", "_")
    return {
        "tensorrt": ("trtexec",),
        "tensorrt_llm": ("trtllm_serve", "trtllm_build"),
        "vllm_cpu": ("vllm",),
    }.get(name, (name,) if name in TITLES else ())


def explain(word: str, section: Section, question: Question) -> Explanation | None:
    """A name of one section; None when no release of any engine that is asked about has or had it."""
    found = [
        (engine, name)
        for engine in programs(question.engine)
        if (name := _find(word, section, engine, question)) is not None
    ]
    if not found:
        return _only_words(word, section, question)
    engine, name = found[0]
    history = stretches(engine, section, name)
    meaning = flags.meanings(engine).get(name)
    fact = vllm.flag(name) if engine == "vllm" and section == "options" else None
    learned = learned_rows(question, engine, section, name)
    newest = flags.spans(engine, section, name)
    row = newest[-1].row if newest else learned[0][1]
    means = [meaning.means] if meaning else []
    if section == "metrics" and engine == "vllm" and not means:
        means = [m.means[:1].upper() + m.means[1:] + "." for m in vllm.metrics() if m.metric == name]
    if row.metric:
        means.append(f"It is a {row.metric}.")
    means += [
        f"`{engine}` {table.version} as installed here says: {found.help}"
        for table, found in learned
        if found.help
    ]
    if not means:
        means = [_by_group(row, section)]
    if fact and fact.default:
        means.append(f"Without it: {fact.default}.")
    points = [*state(engine, name, section, question), *_watch(meaning), *_notes(fact.notes if fact else ())]
    if section == "options":
        points += machine.points(name, None, question)
    return Explanation(
        asked=word,
        kind=KINDS[section],
        title=f"{name} ({TITLES[engine]})",
        means=tuple(means),
        history=history,
        choices=row.choices[:MOST_CHOICES],
        points=tuple(points),
        source=_sources(engine, meaning, fact.source if fact else (), learned),
        near=tuple(f"{n} of {TITLES[e]}" for e, n in found[1:]),
    )


def table_of(question: Question, engine: str) -> Table:
    """The table that an answer is for: of the release asked about, else of the newest, shipped or learned.

    What was read from an installed engine wins over what ships for the same release. UsageError for a release
    older than every table.
    """
    wanted = question.version_of(engine)
    shipped = flags.table(engine, wanted)
    own = [table for table in question.learned if table.engine == engine]
    if wanted is not None:
        return next((table for table in own if key(table.version) == key(wanted)), shipped)
    newer = [table for table in own if key(table.version) > key(shipped.version)]
    return max(newer, key=lambda table: key(table.version), default=shipped)


def _find(word: str, section: Section, engine: str, question: Question) -> str | None:
    name = flags.find(word, section, engine)
    if name is None:
        for table in question.learned:
            if table.engine == engine:
                name = next((n for n in flags.spellings(word) if n in table.section(section)), None)
    return name


def learned_rows(
    question: Question, engine: str, section: Section, name: str
) -> Sequence[tuple[Table, flags.Row]]:
    """The rows of a name in what was read from installed engines."""
    tables = [table for table in question.learned if table.engine == engine]
    return [(table, table.section(section)[name]) for table in tables if name in table.section(section)]


def _only_words(word: str, section: Section, question: Question) -> Explanation | None:
    """A name older than every table, of which something is known all the same."""
    if section != "options" or "vllm" not in programs(question.engine):
        return None
    for name in flags.spellings(word):
        fact, meaning = vllm.flag(name), flags.meanings("vllm").get(name)
        if fact is None and meaning is None:
            continue
        until = fact.until if fact else None
        says = f"no release from {flags.versions('vllm')[0]} on has it"
        instead = fact.use_instead if fact else None
        if instead:
            says += f"; use {instead}"
        points = [Point(about=name, level="wrong", says=says), *_watch(meaning)]
        return Explanation(
            asked=word,
            kind="option",
            title=f"{name} (vLLM)",
            means=(meaning.means,) if meaning else (f"An option of old releases of vLLM ({until}).",),
            points=(*points, *_notes(fact.notes if fact else ())),
            source=tuple(
                dict.fromkeys([*(fact.source if fact else ()), *(meaning.source if meaning else ())])
            ),
        )
    return None


def stretches(engine: str, section: Section, name: str) -> tuple[Stretch, ...]:
    """The history of a name; releases that differ in choices alone are one stretch."""
    newest, known = flags.versions(engine)[-1], flags.versions(engine)
    found: list[Stretch] = []
    for span in flags.spans(engine, section, name):
        until = None if span.until == newest else span.until
        last = found[-1] if found else None
        if (
            last
            and last.until is not None
            and (last.default, last.deprecated) == (span.row.default, span.row.deprecated)
            and known.index(last.until) + 1 == known.index(span.since)
        ):
            found[-1] = _stretch(engine, last.since, until, span.row)
        else:
            found.append(_stretch(engine, span.since, until, span.row))
    return tuple(found)


def _stretch(engine: str, since: str, until: str | None, row: flags.Row) -> Stretch:
    return Stretch(engine=engine, since=since, until=until, default=row.default, deprecated=row.deprecated)


def state(engine: str, name: str, section: Section, question: Question) -> Iterator[Point]:
    """Whether the release that is asked about, or the newest, still has a name, and what to take instead."""
    table = table_of(question, engine)
    version = question.version_of(engine) or table.version
    rows = table.section(section)
    title = f"{TITLES[engine]} {version}"
    if name in rows:
        if rows[name].deprecated:
            yield Point(about=name, level="warn", says=f"deprecated in {title}{_instead(engine, name)}")
        return
    if section == "options" and (other := table.option(name)):
        yield Point(about=name, level="note", says=f"in {title} another spelling of {other[0]}")
        return
    spans = flags.spans(engine, section, name)
    if spans and key(version) < key(spans[0].since):
        yield Point(
            about=name, level="wrong", says=f"{title} does not have it yet: it came with {spans[0].since}"
        )
    elif spans:
        says = f"gone: the last release read that has it is {spans[-1].until}{_instead(engine, name)}"
        yield Point(about=name, level="wrong", says=says)


def _instead(engine: str, name: str) -> str:
    meaning = flags.meanings(engine).get(name)
    fact = vllm.flag(name) if engine == "vllm" else None
    if meaning and meaning.to:
        why = f" ({meaning.because})" if meaning.because else ""
        return f"; use {' '.join(meaning.to).replace('{value}', 'VALUE')}{why}"
    if meaning and meaning.because:
        return f"; {meaning.because}"
    return f"; use {fact.use_instead}" if fact and fact.use_instead else ""


def _watch(meaning: Meaning | None) -> list[Point]:
    if meaning is None:
        return []
    found = [Point(about=meaning.name, level="note", says=text) for text in meaning.watch]
    return found + ([Point(about="speed", level="note", says=meaning.speed)] if meaning.speed else [])


def _notes(notes: tuple[str, ...]) -> list[Point]:
    return [Point(about="note", level="note", says=text) for text in notes]


def _by_group(row: flags.Row, section: Section) -> str:
    """What the table alone tells, where nothing was written about a name."""
    if section == "variables":
        return "An environment variable of this engine; nothing more is written about it here."
    if section == "metrics":
        return "A metric of this engine; nothing more is written about it here."
    kind = {"switch": "A switch", "list": "Takes several values", "value": "Takes a value"}[
        row.takes or "value"
    ]
    group = f", one of the settings that the engine calls {row.group}" if row.group else ""
    return f"{kind}{group}; nothing more is written about it here."


def _sources(
    engine: str,
    meaning: Meaning | None,
    fact: tuple[str, ...],
    learned: Sequence[tuple[Table, flags.Row]],
) -> tuple[str, ...]:
    known = flags.versions(engine)
    table = f"facts/flags/{engine}, {known[0]} to {known[-1]}"
    own = [f"{t.engine} {t.version} as installed here (learned)" for t, _ in learned]
    return tuple(dict.fromkeys([table, *own, *(meaning.source if meaning else ()), *fact]))


def known_names() -> Iterator[str]:
    """Every name that could have been meant."""
    for engine in TITLES:
        for section in flags.SECTIONS:
            yield from flags.every_name(engine, section)
    for term in glossary.terms():
        yield term.name
        yield from term.also


def nearest(word: str, *, most: int = 4) -> tuple[str, ...]:
    """The known names that look most like a word."""
    wanted = word[:120]
    known = {name.lower(): name for name in known_names()}
    close = get_close_matches(wanted.lower(), known, n=most, cutoff=0.7)
    if not close and wanted.lstrip("-") and wanted[0] == "-":
        bare = wanted.lower().lstrip("-").replace("_", "-")
        close = [name for name in known if len(bare) > 3 and bare in name][:most]
    return tuple(known[name] for name in close)

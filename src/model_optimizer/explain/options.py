"""Goes through the options of one command: what each became in the release that the answer is for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from model_optimizer.core.explanation import Point
from model_optimizer.facts import flags, vllm
from model_optimizer.facts.flags import Meaning, Row, Table

from . import machine, names
from .question import Question

SHORTENED = ("vllm", "sglang")
"""Programs whose parser takes the beginning of an option for the option."""
MOST_GUESSES = 30
"""Remarks after which no nearest names are looked for any more."""


@dataclass(slots=True)
class Given:
    """One option as it was written: `name` is the spelling of the tables, `value` all that it was given."""

    written: str
    name: str | None
    values: list[str] = field(default_factory=list[str])

    @property
    def value(self) -> str | None:
        return " ".join(self.values) if self.values else None


@dataclass(slots=True)
class Translation:
    """What came of a command's options: the words for today, what is not an option, and the remarks."""

    words: list[str] = field(default_factory=list[str])
    free: list[str] = field(default_factory=list[str])
    given: dict[str, Given] = field(default_factory=dict[str, Given])
    points: list[Point] = field(default_factory=list[Point])


def read(words: Sequence[str], engine: str, today: Table) -> tuple[list[Given], list[str]]:
    """Options with their values, and the words that belong to none."""
    found: list[Given] = []
    free: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-" or _is_number(word):
            free.append(word)
            continue
        written, _, attached = word.partition("=")
        name, row = _known(written, engine, today)
        one = Given(written, name)
        found.append(one)
        if attached:
            one.values.append(attached)
        elif row is None or row.takes != "switch":
            many = row is not None and row.takes == "list"
            while at < len(words) and (not words[at].startswith("-") or _is_number(words[at])):
                one.values.append(words[at])
                at += 1
                if not many:
                    break
    return found, free


def translate(
    given: Sequence[Given], engine: str, today: Table, question: Question, *, attach: str = " "
) -> Translation:
    """Each option as it is written today. `attach` is what stands between an option and its value."""
    result = Translation()
    for one in given:
        key = one.name or one.written
        if key in result.given:
            result.points.append(
                Point(about=one.written, level="note", says="given twice: the last one counts")
            )
        result.given[key] = one
        meaning = flags.meanings(engine).get(one.name or "")
        now = today.options.get(one.name or "")
        if now and now.deprecated and meaning and meaning.to:
            words = _filled(meaning, one.value, attach)
            says = f"deprecated; write {' '.join(words)}"
            result.words += words
            result.points.append(
                Point(about=one.written, level="changed", says=says, source=meaning.source[0])
            )
            continue
        negative = one.written.startswith("--no-") and one.name is not None and one.name != one.written
        if one.name is not None and one.name in today.options:
            row = today.options[one.name]
            spelled = one.written if negative or "." in one.written else one.name
            points = _present(one, row, engine, question)
            refused = any(p.level == "wrong" and p.source is None for p in points)
            result.words += [] if refused and row.takes != "switch" else _written(spelled, one, row, attach)
            result.points += points
        else:
            result.words += _absent(one, engine, today, attach, result)
    return result


def _known(written: str, engine: str, today: Table) -> tuple[str | None, Row | None]:
    """An option of today's table, else of any release, else nothing."""
    found = today.option(written)
    if found is not None:
        return found
    plain = next((name for name in flags.spellings(written) if name in today.options), None)
    if plain is not None:
        return plain, today.options[plain]
    name = flags.find(written, "options", engine)
    if (
        name is None
        and engine in SHORTENED
        and _older(written, engine) is None
        and vllm.flag(written) is None
    ):
        return _shortened(written, today) or (None, None)
    if name is None:
        return None, None
    return name, flags.spans(engine, "options", name)[-1].row


def _shortened(written: str, today: Table) -> tuple[str, Row] | None:
    """The only option that begins so, which these parsers take for it: `--tp` for `--tp-size`."""
    bare = written.replace("_", "-")
    if not bare.startswith("--") or len(bare) < 4:
        return None
    found = {name for name, row in today.options.items() for s in (name, *row.also) if s.startswith(bare)}
    return next(((name, today.options[name]) for name in found), None) if len(found) == 1 else None


def _written(spelled: str, one: Given, row: Row, attach: str) -> list[str]:
    if row.takes == "switch":
        return [spelled]
    if not one.values:
        return [spelled]
    return [spelled, *one.values] if attach == " " else [f"{spelled}{attach}{' '.join(one.values)}"]


def _present(one: Given, row: Row, engine: str, question: Question) -> list[Point]:
    """What is to be said of an option that the release takes."""
    name = one.name or one.written
    about = one.written if one.value is None else f"{one.written} {one.value}"
    found: list[Point] = []
    meaning = flags.meanings(engine).get(name)
    if row.takes == "switch" and one.values:
        found.append(
            Point(
                about=one.written, level="wrong", says=f"a switch: it takes no value, `{one.value}` stays out"
            )
        )
    if row.takes in ("value", "list") and not one.values and not row.choices:
        found.append(Point(about=one.written, level="wrong", says="needs a value, and none follows"))
    if row.choices and one.values and engine in ("vllm", "sglang"):
        bad = [v for v in one.values if v not in row.choices]
        if bad and not _free_choice(name):
            near = get_close_matches(bad[0], row.choices, n=3, cutoff=0.5) or list(row.choices[:8])
            says = f"does not take `{bad[0]}`; it takes {', '.join(near)}"
            says += " and more" if len(near) < len(row.choices) else ""
            found.append(Point(about=about, level="wrong", says=says))
    if one.value and (why := _out_of_range(name, one.value, row)):
        found.append(Point(about=about, level="wrong", says=why))
    if row.deprecated:
        because = f"; {meaning.because}" if meaning and meaning.because else ""
        found.append(Point(about=about, level="warn", says=f"deprecated{because}"))
    if row.default is not None and one.value == row.default:
        found.append(Point(about=about, level="note", says="is the default already"))
    found += machine.points(name, one.value, question)
    if meaning is not None:
        said = (meaning.speed, *meaning.watch) if row.takes == "switch" else (*meaning.watch, meaning.speed)
        found += [Point(about=about, level="note", says=text) for text in said if text][:1]
    return found


SHARES = ("--gpu-memory-utilization", "--mem-fraction-static", "--free_gpu_memory_fraction")
"""Options whose value is a share, above 0 and at most 1."""


def _out_of_range(name: str, value: str, row: Row) -> str | None:
    """Why a value cannot be: a share above one, a word where a number stands."""
    number = row.default is not None and _is_number(row.default) and row.takes == "value" and not row.choices
    if name in SHARES and not (_is_number(value) and 0 < float(value) <= 1):
        return "is a share: above 0, at most 1"
    if number and not _is_number(value) and not value[:1].isdigit() and not value.startswith("$"):
        return f"takes a number, such as {row.default}"
    return None


def _free_choice(name: str) -> bool:
    """Options whose list is not closed: plug-ins add to it."""
    return name in (
        "--quantization",
        "--reasoning-parser",
        "--tool-call-parser",
        "--load-format",
        "--attention-backend",
    )


def _absent(one: Given, engine: str, today: Table, attach: str, result: Translation) -> list[str]:
    """The words that take the place of an option that the release does not have."""
    name = one.name or one.written
    title = f"{names.TITLES[engine]} {today.version}"
    meaning = flags.meanings(engine).get(name) or _older(one.written, engine)
    spans = flags.spans(engine, "options", one.name) if one.name else ()
    about = one.written if one.value is None else f"{one.written}{attach}{one.value}"
    last = f"its last release was {spans[-1].until}" if spans else "no release that was read has it"
    if spans and _came_later(spans[0].since, today.version):
        last = f"it came with {spans[0].since}"
    if meaning is not None and meaning.to is not None:
        words = _filled(meaning, one.value, attach)
        instead = f"write {' '.join(words)}" if words else "left out"
        because = f": {meaning.because}" if meaning.because else ""
        result.points.append(
            Point(
                about=about,
                level="changed",
                says=f"not in {title} ({last}); {instead}{because}",
                source=meaning.source[0],
            )
        )
        return words
    fact = vllm.flag(name) if engine == "vllm" else None
    if fact and fact.use_instead:
        says = f"not in {title} ({last}); use {fact.use_instead}"
    elif one.name is None:
        near = _near(one.written, today) if len(result.points) < MOST_GUESSES else []
        says = f"not an option of {title}" + (f"; did you mean {' or '.join(near)}?" if near else "")
    else:
        says = f"not in {title} ({last}); left out"
    result.points.append(Point(about=about, level="wrong", says=says))
    return []


def _older(written: str, engine: str) -> Meaning | None:
    """A meaning of an option that is older than every table."""
    known = flags.meanings(engine)
    return next((known[name] for name in flags.spellings(written) if name in known), None)


def _came_later(since: str, version: str) -> bool:
    from model_optimizer.facts.versions import key

    return key(since) > key(version)


def _filled(meaning: Meaning, value: str | None, attach: str) -> list[str]:
    """The words of a replacement with the value put in; a word that needs one falls away without it."""
    found: list[str] = []
    for word in meaning.by_value.get(value or "", meaning.to or ()):
        if "{value}" not in word:
            found.append(word)
        elif value is not None:
            found.append(word.replace("{value}", value))
    if attach != " " and len(found) == 2 and found[0].startswith("-") and not found[1].startswith("-"):
        return [attach.join(found)]
    return found


def _near(written: str, today: Table) -> list[str]:
    return get_close_matches(written.replace("_", "-"), list(today.options), n=2, cutoff=0.75)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True

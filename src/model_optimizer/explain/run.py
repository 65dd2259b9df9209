"""Finds out what kind of thing is asked about, and hands it to the file that knows."""

import re
from dataclasses import replace

from model_optimizer.core import MoptError, plugins
from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.facts import flags, glossary
from model_optimizer.facts.folklore import Claim
from model_optimizer.facts.glossary import Term

from . import bare, claims, code, container, environment, machine, names, schemes, text
from .question import Question, check

PROGRAMS = "model_optimizer.explain.programs"
SURE, CERTAIN = 0.5, 0.95
"""From this score on the claim that was found is taken for the one that was meant; where a name was asked
for, only a claim about just this name is."""


def explain(question: Question) -> Explanation:
    """What a thing means today. Raises MoptError with the nearest names when nothing is known."""
    check(question.thing)
    thing = text.clean(question.thing)
    if thing.endswith(("...", "…")):  # "and so on", which is no word of a command
        thing = thing.rstrip(" .…") or thing
    check(thing)
    question = replace(question, thing=thing)
    found = (
        _file(thing, question)
        or _name(thing, question)
        or _commands(thing, question)
        or _term(thing)
        or _claim(thing, CERTAIN if _is_name(thing) else SURE)
        or _loose(thing, question)
        or (None if _is_name(thing) else _claim(thing, claims.LEAST))
    )
    if found is None:
        raise unknown(thing)
    return _safe(found)


def _safe(found: Explanation) -> Explanation:
    """No secret leaves in any part of the answer, whoever wrote that part."""
    points = tuple(replace(p, about=text.masked(p.about), says=text.masked(p.says)) for p in found.points)
    return replace(
        found,
        asked=text.masked(found.asked),
        title=text.masked(found.title),
        means=tuple(map(text.masked, found.means)),
        points=points,
        today=tuple(map(text.masked, found.today)),
        do=tuple(map(text.masked, found.do)),
    )


def _is_name(thing: str) -> bool:
    """One word that is written like an option, a variable or a metric: it is known, or it is not."""
    one = len(thing.split()) == 1
    return one and (thing.startswith("-") or bool(re.fullmatch(r"[A-Z0-9_]+|[a-z]+:\w+", thing)))


def _file(thing: str, question: Question) -> Explanation | None:
    if container.is_compose(thing):
        return container.compose(thing, question)
    if container.is_dockerfile(thing):
        return container.dockerfile(thing, question)
    return code.explain(thing, question)


def _name(thing: str, question: Question) -> Explanation | None:
    """One word, or an option with its value."""
    words = thing.split()
    if len(words) == 2 and words[0].startswith("-") and not words[1].startswith("-"):
        return _option(words[0], words[1], question)
    if len(words) != 1:
        return None
    word, equals, value = thing.partition("=")
    if word.startswith("-"):
        return _option(word, value if equals else None, question)
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", word):
        return _term(word) or names.explain(word, "variables", question)
    if ":" in word and "/" not in word:
        return names.explain(word, "metrics", question)
    if scheme := schemes.named(word):
        return schemes.explain(scheme, question)
    if re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)+", word):
        return names.explain(f"--{word}", "options", question)
    return None


def _option(word: str, value: str | None, question: Question) -> Explanation | None:
    found = names.explain(word, "options", question)
    if found is None or value is None:
        return found
    name = found.title.split(" ")[0]
    points = list(machine.points(name, value, question))
    if found.choices and value not in found.choices:
        shown = ", ".join(found.choices[:12])
        points.insert(
            0,
            Point(
                about=f"{name} {value}", level="wrong", says=f"it does not take `{value}`; it takes {shown}"
            ),
        )
    said = [p for p in found.points if p.about != name or p.level != "note" or not points]
    return replace(found, asked=text.masked(f"{word} {value}"), points=(*points, *said))


def _commands(thing: str, question: Question) -> Explanation | None:
    """A command line, or the commands of a script that a program here knows."""
    programs = plugins.load_all(PROGRAMS)
    found: list[Explanation] = []
    exported: list[tuple[str, str]] = []
    alone = bare.command(thing, question)
    for line in [alone] if alone else text.lines(thing)[:50]:
        words = text.without_prefix(line)
        own = text.variables(text.line(line))
        if line[0] == "export":
            exported += [pair for pair in own if pair[0].startswith(tuple(environment.PREFIXES.values()))]
        program = next((p for p in programs.values() if _is_command(words) and p.matches(words)), None)
        if program is not None:
            found.append(program.explain(words, replace(question, variables=(*exported, *own))))
    if not found:
        return None
    if len(found) == 1:
        best = claims.search(thing, most=1)
        said = tuple(f"claim: {c.said}" for c, score in best if score >= 0.6)
        return replace(found[0], near=(*found[0].near, *said))
    return Explanation(
        asked=text.masked(thing)[:2000],
        kind="command",
        title=f"{len(found)} commands",
        means=tuple(f"{at}. {one.title}: {' '.join(one.means[:1])}" for at, one in enumerate(found, 1)),
        points=tuple(point for one in found for point in one.points),
        today=tuple(line for one in found for line in one.today),
        today_for=" and ".join(dict.fromkeys(one.today_for for one in found if one.today_for)),
        do=tuple(dict.fromkeys(step for one in found for step in one.do)),
        source=tuple(dict.fromkeys(source for one in found for source in one.source)),
    )


def _is_command(words: list[str]) -> bool:
    """Told apart from a sentence: a path, options, a subcommand or a module."""
    if len(words) < 2:
        return False
    return (
        words[1].startswith("-")
        or any(w.startswith("-") for w in words)
        or words[1] in _SUBCOMMANDS
        or "/" in words[-1]
    )


_SUBCOMMANDS = frozenset(("serve", "run", "install", "bench"))


def _term(thing: str) -> Explanation | None:
    found = glossary.by_name().get(glossary.plain(thing.rstrip("?"))) or _within(thing)
    return _of_term(thing, found) if found else None


def _within(thing: str) -> Term | None:
    """The term that makes up at least half of a short question."""
    if len(thing.split()) < 2:
        return None
    wanted = frozenset(claims.tokens(thing[:400]))
    best: tuple[int, Term | None] = (0, None)
    for name, term in glossary.by_name().items():
        words = frozenset(claims.tokens(name))
        if words and words <= wanted and 2 * len(words) >= len(wanted) and len(words) > best[0]:
            best = (len(words), term)
    return best[1]


def _of_term(thing: str, term: Term) -> Explanation:
    return Explanation(
        asked=text.masked(thing),
        kind=term.kind,
        title=f"{term.name} ({', '.join(term.also[:3])})" if term.also else term.name,
        means=(term.means,),
        points=tuple(Point(about=term.name, level="note", says=says) for says in term.watch),
        do=term.do,
        source=term.source,
    )


def _claim(thing: str, least: float) -> Explanation | None:
    best = claims.search(thing)
    named = [pair for pair in best if _is_name(thing) and thing.lower() in pair[0].said.lower()]
    if not named and (not best or best[0][1] < least):
        return None
    claim, score = (named or best)[0]
    if not named and score < SURE and not _numbers(thing) <= _numbers(" ".join((claim.said, *claim.asked))):
        return None
    near = [c.said for c, other in best[1:] if other >= max(claims.LEAST, score - 0.15)]
    return _of_claim(thing, claim, score, tuple(near[:2]))


def _numbers(text_of: str) -> set[str]:
    """Numbers that tell one question from another: versions, errors, sizes."""
    return {word for word in claims.tokens(text_of) if word[0].isdigit() and len(word) > 2}


def _of_claim(thing: str, claim: Claim, score: float, near: tuple[str, ...]) -> Explanation:
    means: tuple[str, ...] = (claim.why,)
    if score < SURE:
        means = ("The nearest claim that is known here:", *means)
    elif score < CERTAIN and not _is_name(thing):
        means = (
            *means,
            "The verdict is on the claim above, the nearest that is known here to what you wrote.",
        )
    return Explanation(
        asked=text.masked(thing)[:500],
        kind="claim",
        title=claim.said,
        means=means,
        verdict=claim.verdict,
        do=(claim.do,) if claim.do else (),
        source=claim.source,
        near=near,
    )


def _loose(thing: str, question: Question) -> Explanation | None:
    """A name without its dashes or in other letters, or a name within a short question."""
    words = [w.strip("?.,`'\"") for w in thing.split()]
    if len(words) > 12:
        return None
    alone = sum(word.startswith("-") for word in words) == 1
    for word in words if alone else []:
        if word.startswith("--") and (found := names.explain(word, "options", question)):
            return found
    for word in words if len(words) <= 4 else []:
        if len(word) > 3:
            found = (
                (
                    names.explain(word, "options", question)
                    if "-" in word or "_" in word or len(words) == 1
                    else None
                )
                or (names.explain(f"vllm:{word}", "metrics", question) if "_" in word else None)
                or (names.explain(word.upper(), "variables", question) if "_" in word else None)
            )
            if found:
                return found
        if scheme := schemes.named(word):
            return schemes.explain(scheme, question)
        if term := glossary.by_name().get(glossary.plain(word)):
            return _of_term(thing, term)
    return None


def unknown(thing: str) -> MoptError:
    """Nothing is known: the nearest names and claims."""
    shown = text.masked(thing)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    hints: list[str] = []
    if len(thing.split()) <= 2:
        near = names.nearest(thing.split()[0])
        hints += [f"did you mean {' or '.join(f'`{name}`' for name in near)}?"] if near else []
    searched = () if _is_name(thing) else claims.search(thing, most=2)
    best = [c.said for c, score in searched if score > 0.2]
    hints += [f"the nearest claim: {said}" for said in best]
    if re.search(r"(?i)error|exception|failed|crash", thing):
        hints.append("for a message of an error: mopt diagnose LOG, or - for standard input")
    if not hints:
        engines = ", ".join(names.TITLES[e] for e in flags.engines())
        hints = [f"known are flags, metrics and variables of {engines}, schemes, and common claims"]
    return MoptError(
        f"nothing is known of `{shown}`",
        hint=tuple(hints),
        reference="unknown-thing",
    )

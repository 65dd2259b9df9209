"""From what was seen to one cause: what explains what, what speaks against it, how sure that leaves us."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from model_optimizer.core import Host
from model_optimizer.core.diagnosis import Confidence, Diagnosis, Recognized

from . import correlate
from .landmarks import INFORMATION, SERVED, WARNING
from .match import Hit, Matcher
from .needed import needed
from .signature import LAYERS
from .tried import DOUBTS, INSTEAD, TRIED

STEPS: tuple[Confidence, ...] = ("low", "medium", "high")
_WEIGHT = {"specific": 0, "general": 1, "symptom": 2}
_SURE: dict[str, Confidence] = {"specific": "high", "general": "medium", "symptom": "low"}
"""A symptom alone is never the diagnosis."""

_PLATFORMS = {
    "ubuntu": "Ubuntu",
    "debian": "Debian",
    "rhel": "RHEL, Rocky",
    "wsl2": "WSL2",
    "windows": "Windows",
}


@dataclass(slots=True)
class Candidate:
    """A possible cause. `against` are sentences; one is enough to be believed last, and `refuted` by what
    is known of the host is not believed at all unless there is something else to look at. `tried` are kinds
    of tried.TRIED."""

    hit: Hit
    supports: tuple[str, ...]
    against: tuple[str, ...]
    refuted: bool
    tried: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.hit.signature.id

    @property
    def weight(self) -> int:
        """0 for a message that only this cause makes, 2 for one that many make."""
        return _WEIGHT[self.hit.signature.head.weight]

    def order(self) -> tuple[int, ...]:
        """Smaller is more likely the cause."""
        head = self.hit.signature.head
        return (
            int(bool(self.against)),
            int(head.kind == "client"),
            int(self.hit.level == INFORMATION),
            self.weight,
            int(not self.supports),
            int(self.hit.level == WARNING),
            self.hit.first,
            LAYERS.index(head.layer),
        )


def judge(seen: Matcher, host: Host | None) -> Diagnosis:
    """Everything but silence: what a log itself shows."""
    hits = [hit for hit in seen.hits if hit.count and not hit.signature.head.silent]
    place = correlate.platform(host) or _platform_of_log(seen)
    beside = {kind: _of_kind(hits, kind, place) for kind in ("contributing", "benign", "wrapper")}
    roots = [h for h in hits if h.signature.head.kind in ("root", "client") and _required(h, seen)]
    latest = max((h.run for h in roots), default=0)
    candidates = [_candidate(h, seen, host) for h in roots if h.run == latest]
    explained = _explained(candidates, hits)
    standing = sorted((c for c in candidates if c.id not in explained), key=Candidate.order)
    primary, others = None, standing
    if standing and standing[0].weight < _WEIGHT["symptom"]:
        confidence, why = _confidence(standing, seen, latest)
        if confidence is not None:
            explains = [i for i, by in explained.items() if by == standing[0].id]
            primary = _recognized(standing[0], place, confidence, why, explains)
            others = standing[1:]
    return Diagnosis(
        primary=primary,
        contributing=beside["contributing"],
        benign=beside["benign"],
        wrappers=beside["wrapper"],
        others=tuple(_plain(c.hit, place, _doubts(c)) for c in others),
        consequences=tuple(
            _plain(c.hit, place, (f"follows from {explained[c.id]}",))
            for c in candidates
            if c.id in explained
        ),
        unexplained=tuple(seen.unexplained),
        needed=needed(seen, primary),
        lines=seen.lines,
        bytes=seen.bytes,
    )


def _doubts(candidate: Candidate) -> tuple[str, ...]:
    shared = candidate.weight == _WEIGHT["symptom"]
    return (*candidate.against, *(("many causes share this message",) if shared else ()))


def _of_kind(hits: Sequence[Hit], kind: str, place: str | None) -> tuple[Recognized, ...]:
    return tuple(_plain(hit, place) for hit in hits if hit.signature.head.kind == kind)


def _required(hit: Hit, seen: Matcher) -> bool:
    wanted = hit.signature.head.requires
    return not wanted or any(_line_of(word, seen) for word in wanted)


def _line_of(word: str, seen: Matcher) -> int | None:
    """Where a word, or any phrase of a kind of `tried`, stands first."""
    return seen.landmarks.get(word) if word in TRIED else seen.words.get(word.lower())


def _candidate(hit: Hit, seen: Matcher, host: Host | None) -> Candidate:
    head = hit.signature.head
    against: list[str] = []
    tried = {line: w for w in head.not_when if (line := _line_of(w, seen))}
    if tried:
        line, word = min(tried.items())
        shown = "" if word in TRIED else f" (`{word}`)"
        against.append(f"line {line}{shown} says that the usual answer was tried or does not apply")
    if _overcome(hit, seen):
        line = max(seen.landmarks["ready"], seen.landmarks.get(SERVED, 0))
        against.append(f"line {line} shows that the program started afterwards, and works")
    same = [hit.values.get(name) for name in head.unless_same]
    if len(same) == 2 and same[0] is not None and same[0] == same[1]:
        against.append(f"both values are {same[0]}, so they do not differ")
    rules = hit.signature.body.host
    refuting = correlate.ask(rules.contradicts, host, hit.values)
    supports = correlate.ask(rules.supports, host, hit.values)
    return Candidate(
        hit=hit,
        supports=supports,
        against=(*against, *refuting),
        refuted=bool(refuting),
        tried=tuple(w for w in tried.values() if w in TRIED),
    )


def _explained(candidates: Sequence[Candidate], hits: Sequence[Hit]) -> Mapping[str, str]:
    """id -> the candidate that explains it: by name, on the same line and more specific, or any cause for a
    symptom. One that something speaks against explains nothing.
    """
    there = {h.signature.id for h in hits}
    found: dict[str, str] = {}
    ordered = [c for c in sorted(candidates, key=Candidate.order) if not c.against]
    for cause in ordered:
        owner = found.get(cause.id, cause.id)
        vaguer = (c.id for c in candidates if c.hit.first == cause.hit.first and c.weight > cause.weight)
        for name in (*cause.hit.signature.head.beats, *vaguer):
            if name in there and name not in (owner, cause.id):
                found.setdefault(name, owner)
    symptom = _WEIGHT["symptom"]
    if ordered and ordered[0].weight < symptom:
        first = found.get(ordered[0].id, ordered[0].id)
        found |= {c.id: first for c in candidates if c.weight == symptom and c.id not in found}
    return found


def _confidence(
    standing: Sequence[Candidate], seen: Matcher, run: int
) -> tuple[Confidence | None, tuple[str, ...]]:
    """How sure the first one is, None for not sure enough to say it; and why."""
    first = standing[0]
    hit, head = first.hit, first.hit.signature.head
    level = STEPS.index(head.confidence or _SURE[head.weight])
    why: list[str] = []
    rivals = [c for c in standing[1:] if not c.against and c.order()[:6] == first.order()[:6]]
    if rivals:
        level -= 1
        why.append(f"{', '.join(c.id for c in rivals[:3])} could be the cause as well")
    if hit.level >= WARNING and (seen.unexplained or len(standing) > 1):
        level -= 1
        why.append("it is only a warning, and there are other errors")
    elif hit.level >= WARNING and hit.count == 1:
        level = min(level, 1)
        why.append("one line that is no error is all that shows it")
    elif _later_unknown(seen, hit):
        level = min(level, 1)
        why.append(f"line {seen.unexplained[0].line} is an earlier error that is not known here")
    if _overcome(hit, seen):
        return None, first.against
    expected = any(word in TRIED for word in head.requires)
    if not expected and (doubts := _doubts_of(seen)):
        level = min(level - 1, 1)
        why += doubts
    if seen.landmarks.get("ready", 0) > hit.last:
        level -= 1
        why.append(f"line {seen.landmarks['ready']} says that the program was ready afterwards")
    if run < seen.run:
        why.append("it is of an earlier start of the program")
        level -= 1
    if first.supports:
        level += 1
        why += first.supports
    if first.against:
        why += first.against
        if (level <= 0 or first.refuted) and not hit.signature.body.otherwise:
            return None, tuple(why)
        level = 0
    return STEPS[max(0, min(level, len(STEPS) - 1))], tuple(why)


def _doubts_of(seen: Matcher) -> list[str]:
    """What people wrote beside the log that makes any answer less sure."""
    return [t.format(line=seen.landmarks[kind]) for kind, t in DOUBTS.items() if kind in seen.landmarks]


def _overcome(hit: Hit, seen: Matcher) -> bool:
    """It came before the program was ready for the first time, and then requests were answered; of a warning
    it is enough that the program was ready afterwards."""
    ready = seen.first_ready
    if hit.signature.head.kind == "client" or ready is None:
        return False
    if hit.level >= WARNING and hit.last < seen.landmarks["ready"]:
        return True
    return hit.last < ready < seen.landmarks.get(SERVED, 0)


def _later_unknown(seen: Matcher, hit: Hit) -> bool:
    """An error that nobody knows stands before the one that is known: it may be the real cause.

    A KeyError is none: looking something up and then saying what is missing is how many errors are made.
    """
    unknown = [e for e in seen.unexplained if not e.text.rpartition(" ")[0].endswith("KeyError:")]
    return bool(unknown) and unknown[0].line < hit.first - 1


def _recognized(
    candidate: Candidate,
    place: str | None,
    confidence: Confidence,
    why: Sequence[str],
    explains: Sequence[str],
) -> Recognized:
    because = [*why, *(f"explains {name}" for name in explains)]
    instead = tuple(INSTEAD[kind] for kind in candidate.tried if kind in INSTEAD)
    return named(
        candidate.hit, place, tuple(because), confidence, tried=bool(candidate.against), instead=instead
    )


def _plain(hit: Hit, place: str | None, because: tuple[str, ...] = ()) -> Recognized:
    return named(hit, place, because, None)


def named(
    hit: Hit,
    place: str | None,
    because: tuple[str, ...],
    confidence: Confidence | None,
    *,
    tried: bool = False,
    instead: tuple[str, ...] = (),
) -> Recognized:
    """What was seen, with what is known about it."""
    signature, body = hit.signature, hit.signature.body
    said = _said(body.said, hit.values)
    return Recognized(
        id=signature.id,
        kind=signature.head.kind,
        layer=signature.head.layer,
        cause=f"{body.cause} {said}" if said else body.cause,
        fix=_fixes(hit, place, tried=tried, instead=instead),
        confidence=confidence,
        evidence=tuple(hit.evidence),
        probe=body.probe,
        because=because,
        values=hit.values,
        count=hit.count,
        source=body.source,
    )


def _said(text: str | None, values: Mapping[str, str]) -> str | None:
    """The sentence with its figures; None when one of them was not found."""
    if text is None:
        return None
    try:
        return text.format_map(values)
    except KeyError:
        return None


def _fixes(hit: Hit, place: str | None, *, tried: bool, instead: tuple[str, ...]) -> tuple[str, ...]:
    """Steps for this platform; for all when it is not known. What was tried comes after what is left."""
    body = hit.signature.body
    kept = {p: steps for p, steps in body.fix_on.items() if place is None or p == place}
    on = [f"{_PLATFORMS[p]}: {s}" if place is None else s for p, steps in kept.items() for s in steps]
    steps = (*body.fix, *on, *((f"Risk: {body.risk}",) if body.risk else ()))
    return (*(body.otherwise or instead), *steps) if tried else steps


def _platform_of_log(seen: Matcher) -> str | None:
    for place in ("wsl2", "windows", "rhel", "ubuntu", "debian"):
        if f"on {place}" in seen.landmarks:
            return cast(str, place)
    return None

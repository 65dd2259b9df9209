"""Find known failures in a stream of text.

An Aho-Corasick automaton looks for all fragments at once; only lines that hold one are decoded and given to
the regular expressions, and those see a bounded window, so that no log can make them slow.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, cast

from model_optimizer.core.diagnosis import Evidence

from .landmarks import INFORMATION, LANDMARKS, ONCE, SERVED, is_error, level_of
from .signature import Signature, needles
from .tried import TRIED

BEFORE, AFTER = 400, 800
"""Characters around a fragment that a regular expression sees."""

SHOWN = 400
"""Characters of a line that are kept as evidence."""

EVIDENCE = 3
SATURATED = 256
"""After so many lines, one without a regular expression is only counted."""

MOST_MISSES = 20_000
"""Lines with the fragment but not the rest, after which a signature is no longer tried."""

NEAR = 40
"""Lines before a failure in which what explains it has to stand."""

UNEXPLAINED = 3
JSON_LONGEST = 1 << 16
KEPT_LINES = 8
KEPT_BYTES = 1 << 13


@dataclass(slots=True)
class Hit:
    """What was seen of one signature. `run` counts starts of the program that the log shows.

    `level` is the worst that a line has.
    """

    signature: Signature
    run: int = -1
    count: int = 0
    misses: int = 0
    first: int = 0
    last: int = 0
    level: int = INFORMATION
    evidence: list[Evidence] = field(default_factory=list[Evidence])
    values: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Owner:
    """Who asked for a fragment: signatures by number, landmarks and words by name. Of `words` the first line
    matters, of those that have to be `near` the latest."""

    signatures: list[int] = field(default_factory=list[int])
    landmarks: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])
    near: list[str] = field(default_factory=list[str])


class Table:
    """The automaton of all fragments. It knows nothing of a log and serves any number of them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        from ahocorasick_rs import BytesAhoCorasick

        owners: dict[bytes, Owner] = {}
        for number, signature in enumerate(signatures):
            for needle in signature.needles():
                owners.setdefault(needle, Owner()).signatures.append(number)
            for word in (*signature.head.requires, *signature.head.not_when):
                for needle in () if word in TRIED else needles((word,)):
                    owners.setdefault(needle, Owner()).words.append(word.lower())
            for word in signature.head.near:
                for needle in needles((word,)):
                    owners.setdefault(needle, Owner()).near.append(word.lower())
        for name, fragments in LANDMARKS.items():
            for needle in needles(fragments):
                owners.setdefault(needle, Owner()).landmarks.append(name)
        self.needles = list(owners)
        self.owners = list(owners.values())
        self.near = {
            n: o.near[0] for n, o in enumerate(self.owners) if o == Owner(near=o.near[:1]) and o.near
        }
        self.served = {n for n, owner in enumerate(self.owners) if owner == Owner(landmarks=[SERVED])}
        self.search = BytesAhoCorasick(self.needles)


@cache
def table(signatures: tuple[Signature, ...]) -> Table:
    """The automaton of these signatures, built once."""
    return Table(signatures)


class Matcher:
    """Feed it blocks of text in order, then read `hits`, `landmarks` and `unexplained`."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        found = table(tuple(signatures))
        self._search, self._needles, self._owners = found.search, found.needles, found.owners
        self._served, self._near_only = found.served, found.near
        self.hits = [Hit(signature) for signature in signatures]
        self.landmarks: dict[str, int] = {}
        self.first_ready: int | None = None
        self.near: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.unexplained: list[Evidence] = []
        self.run = 0
        self.lines = 0
        self.bytes = 0
        self.last_lines: list[Evidence] = []
        self._errors = 0
        self._quiet: set[int] = set()
        self._only_counted: dict[int, Hit] = {}
        self._counted_line = 0

    def feed(self, block: bytes, *, whole: bool = True) -> None:
        """`block` holds whole lines, the last of which may lack its end. `whole` False: that line goes on."""
        counted, number = 0, self.lines + 1
        here: list[tuple[int, int]] = []
        quiet, only_counted, near_only = self._quiet, self._only_counted, self._near_only
        for pattern, start, end in self._search.find_matches_as_indexes(block.lower(), overlapping=True):
            if pattern in quiet:
                continue
            breaks = block.count(b"\n", counted, end)
            if breaks and here:
                self._line(block, number, here)
                here = []
            number += breaks
            counted = end
            if word := near_only.get(pattern):
                self.near[word] = number
                continue
            if hit := only_counted.get(pattern):
                self._counted_line = number
                hit.count += hit.last != number
                hit.last = number
                continue
            here.append((pattern, start))
        if here:
            self._line(block, number, here)
        self.lines += block.count(b"\n")
        if whole and not block.endswith(b"\n"):
            self.lines += 1
        self.bytes += len(block)
        self._keep_last(block)

    def _keep_last(self, block: bytes) -> None:
        """The last lines that say something, with their numbers."""
        tail = block[-KEPT_BYTES:].decode("utf-8", "replace").removesuffix("\n").split("\n")
        first = self.lines - len(tail) + 1
        found = [
            Evidence(line=first + n, text=_shown(line, line)) for n, line in enumerate(tail) if line.strip()
        ]
        self.last_lines = [*self.last_lines, *found][-KEPT_LINES:]

    def _line(self, block: bytes, number: int, found: list[tuple[int, int]]) -> None:
        """All fragments of one line."""
        line = _Line(block, found[0][1], number)
        known = False
        for pattern, start in found:
            owner = self._owners[pattern]
            for word in owner.words:
                self.words.setdefault(word, number)
            for word in owner.near:
                self.near[word] = number
            once = all(name.startswith(ONCE) for name in owner.landmarks)
            if not owner.signatures and not owner.near and once:
                self._quiet.add(pattern)  # seen once, nothing more to learn from it
            for index in owner.signatures:
                known |= self._signature(self.hits[index], line, self._needles[pattern], start)
            if len(owner.signatures) == 1 and not owner.landmarks:
                self._count_only(pattern, self.hits[owner.signatures[0]])
            for name in owner.landmarks:
                self._landmark(name, number)
        known = known or self._counted_line == number
        if not known and any(self._owners[p].landmarks for p, _ in found):
            self._maybe_error(line, found[0][1])

    def _count_only(self, pattern: int, hit: Hit) -> None:
        """Nothing more is learnt from a fragment that decides by itself and was seen often, or that was seen
        too often without the rest of its failure."""
        if self._often(hit):
            self._only_counted[pattern] = hit
        elif hit.misses >= MOST_MISSES and not self._owners[pattern].words:
            self._quiet.add(pattern)

    def _often(self, hit: Hit) -> bool:
        return hit.signature.head.regex is None and hit.count >= SATURATED and hit.run == self.run

    def _landmark(self, name: str, number: int) -> None:
        if name == "start":
            self.run += 1
            self._only_counted.clear()
        elif name == "ready" and self.first_ready is None:
            self.first_ready = number
        elif name == SERVED:
            self._quiet |= self._served
        if name in TRIED:
            self.landmarks.setdefault(name, number)
        else:
            self.landmarks[name] = number

    def _maybe_error(self, line: "_Line", start: int) -> None:
        """An error that no signature knows; the first two and the last are kept."""
        self._errors += 1
        if self._errors > MOST_MISSES:
            only = Owner(landmarks=["error"])
            self._quiet |= {number for number, owner in enumerate(self._owners) if owner == only}
            return
        text = line.around(start)
        if not is_error(text):
            return
        found = Evidence(line=line.number, text=_shown(text, text))
        if len(self.unexplained) < UNEXPLAINED:
            self.unexplained.append(found)
        else:
            self.unexplained[-1] = found

    def _signature(self, hit: Hit, line: "_Line", needle: bytes, start: int) -> bool:
        if hit.last == line.number and hit.count:
            return True
        head = hit.signature.head
        if self._often(hit):
            hit.count += 1
            hit.last = line.number
            return True
        if hit.misses >= MOST_MISSES or (head.near and not self._is_near(head.near, line.number)):
            return False
        text = line.around(start)
        shown, values = text, dict[str, str]()
        if head.regex is not None:
            piece = line.piece(needle, start)
            match = _compiled(head.regex).search(piece)
            if match is None:
                hit.misses += 1
                return False
            shown = match[0]
            values = {k: v.strip()[:80] for k, v in match.groupdict().items() if v}
        if hit.run != self.run:
            # A new start of the program: what an earlier one showed is only counted.
            hit.run, hit.first, hit.level = self.run, line.number, INFORMATION
            hit.evidence, hit.values = [], values
        hit.count += 1
        hit.last = line.number
        if head.kind == "root":
            self._quiet -= self._served
        hit.level = min(hit.level, level_of(text))
        evidence = _shown(line.piece(needle, start), shown if head.regex else needle.decode())
        if len(hit.evidence) < EVIDENCE and all(e.text != evidence for e in hit.evidence):
            hit.evidence.append(Evidence(line=line.number, text=evidence))
        return True

    def _is_near(self, words: Sequence[str], number: int) -> bool:
        return any(self.near.get(word.lower(), -NEAR) >= number - NEAR for word in words)


class _Line:
    """One line of a block; its ends are looked for, and it is decoded, when that is needed."""

    def __init__(self, block: bytes, at: int, number: int) -> None:
        self.number = number
        self._block = block
        self._at = at
        self._pieces: list[str] | None = None

    @cached_property
    def _ends(self) -> tuple[int, int]:
        end = self._block.find(b"\n", self._at)
        return self._block.rfind(b"\n", 0, self._at) + 1, len(self._block) if end < 0 else end

    def around(self, start: int) -> str:
        """The line, or what is near the fragment when it is long."""
        first, last = self._ends
        begin, end = max(first, start - BEFORE), min(last, start + AFTER)
        return self._block[begin:end].decode("utf-8", "replace").strip()

    def piece(self, needle: bytes, start: int) -> str:
        """What a regular expression sees. Of a JSON line: the line of the message that holds the fragment."""
        text = self.around(start)
        begin, end = self._ends
        if self._block[begin : begin + 1] != b"{" and '\\"' not in text:
            return text
        if self._pieces is None:
            whole = self._block[begin : min(end, begin + JSON_LONGEST)]
            self._pieces = _messages(whole.decode("utf-8", "replace"))
        plain = _unescaped(needle.decode()).lower()
        for piece in self._pieces:
            at = piece.lower().find(plain)
            if at >= 0:
                return piece[max(0, at - BEFORE) : at + AFTER].strip()
        return _unescaped(text)


def _messages(line: str) -> list[str]:
    """The lines of all texts in a JSON object; [] when it is none."""
    try:
        raw: Any = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [piece for text in _texts(raw, 3) for piece in text.splitlines()]


def _texts(raw: object, depth: int) -> Iterable[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict) and depth:
        for value in cast("dict[str, object]", raw).values():
            yield from _texts(value, depth - 1)
    elif isinstance(raw, list) and depth:
        for value in cast("list[object]", raw):
            yield from _texts(value, depth - 1)


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"').replace("\\\\", "\\")


def _shown(text: str, part: str) -> str:
    """A line cut to what can be shown, with the part that matters in it."""
    text = text.rsplit("\r", 1)[-1] if part.lower() in text.rsplit("\r", 1)[-1].lower() else text
    text = " ".join(text.split())
    if len(text) <= SHOWN:
        return text
    at = max(0, text.lower().find(" ".join(part.lower().split())))
    begin = max(0, min(at - 100, len(text) - SHOWN))
    return (
        f"{'...' if begin else ''}{text[begin : begin + SHOWN]}{'...' if begin + SHOWN < len(text) else ''}"
    )


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE)

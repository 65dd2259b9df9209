"""The training text: documents from three Debian packages and conversations made from them.

Every document belongs to a group (a page, a chapter, a block of neighbouring dictionary entries). Whole
groups are held out, so neither a held-out text nor a conversation made from it is ever trained on.
"""

import hashlib
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rst

ENTRIES_PER_BLOCK = 8
HELD_OUT_PART = 50  # one group in fifty
_PARTS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}

Message = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text; `corpus` is python, wordnet, bible or chat, `group` the unit that is held out as a whole."""

    corpus: str
    group: str
    text: str

    @property
    def held_out(self) -> bool:
        return _number(self.group) % HELD_OUT_PART == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A WordNet synset: its words, part of speech, definition, examples and what it is a kind of."""

    offset: int
    words: tuple[str, ...]
    part: str
    definition: str
    examples: tuple[str, ...]
    kind_of: str | None


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def documents(root: Path) -> list[Document]:
    """All documents under `root`, the folder into which the packages were unpacked with `dpkg -x`."""
    pages = dict(python_pages(root))
    blocks = dict(wordnet_blocks(root))
    chapters = dict(bible_chapters(root))
    found = [Document(corpus="python", group=key, text=rst.rst_to_text(page)) for key, page in pages.items()]
    found += [
        Document(corpus="wordnet", group=key, text=entries_text(block)) for key, block in blocks.items()
    ]
    found += [
        Document(corpus="bible", group=key, text=chapter_text(*chapter)) for key, chapter in chapters.items()
    ]
    for key, page in pages.items():
        found += _conversations(key, python_conversations(page, random.Random(_number(key))))
    for key, block in blocks.items():
        found += _conversations(key, wordnet_conversations(block, random.Random(_number(key))))
    for key, chapter in chapters.items():
        found += _conversations(key, bible_conversations(*chapter, random.Random(_number(key))))
    return found


def _conversations(group: str, made: list[list[Message]]) -> list[Document]:
    return [Document(corpus="chat", group=group, text=chat_text(messages)) for messages in made]


def chat_text(messages: list[Message]) -> str:
    """The conversation as the model's chat template writes it."""
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def python_pages(root: Path) -> Iterator[tuple[str, str]]:
    """`(key, reStructuredText)` of every page of the Python 3.11 documentation but the licences."""
    sources = root / "usr/share/doc/python3.11/html/_sources"
    for path in sorted(sources.rglob("*.rst.txt")):
        if path.name in ("license.rst.txt", "copyright.rst.txt", "contents.rst.txt"):
            continue
        source = path.read_text(encoding="utf-8")
        if len(source) > 400:
            yield f"python/{path.relative_to(sources)}", source


def bible_chapters(root: Path) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """`(key, (title, verses))` of the King James version, as the package's own reader prints it."""
    command = [str(root / "usr/bin/bible"), "-p", str(root / "usr/lib"), "-l9999", "gen1:1-rev22:21"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    title, verses = "", []
    for line in [*printed.splitlines(), "end"]:
        verse = re.match(r"^  \d+ (.*)$", line)
        if verse:
            verses.append(verse.group(1).strip())
        elif line.strip():
            if verses:
                yield f"bible/{title}", (title, verses)
            title, verses = line.strip(), []


def chapter_text(title: str, verses: list[str]) -> str:
    return f"# {title}\n\n" + "\n".join(f"{number} {verse}" for number, verse in enumerate(verses, 1)) + "\n"


def wordnet_blocks(root: Path) -> Iterator[tuple[str, list[Entry]]]:
    """`(key, entries)` of neighbouring dictionary entries; neighbours are close in meaning."""
    for kind in ("noun", "verb", "adj", "adv"):
        entries = list(_wordnet_entries(root / f"usr/share/wordnet/data.{kind}"))
        for at in range(0, len(entries), ENTRIES_PER_BLOCK):
            yield f"wordnet/{kind}/{at}", entries[at : at + ENTRIES_PER_BLOCK]


def _wordnet_entries(path: Path) -> Iterator[Entry]:
    lines = [line for line in path.read_text(encoding="latin-1").splitlines() if not line.startswith("  ")]
    words = {int(line.split(" ", 1)[0]): _words(line) for line in lines}
    for line in lines:
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        parent = re.search(r" @ (\d{8}) ", data)
        definition, examples = _split_gloss(gloss)
        kind_of = words.get(int(parent.group(1)), ()) if parent else ()
        yield Entry(
            offset=int(fields[0]),
            words=_words(line),
            part=_PARTS[fields[2]],
            definition=definition,
            examples=examples,
            kind_of=kind_of[0] if kind_of else None,
        )


def _words(line: str) -> tuple[str, ...]:
    fields = line.split(" ", 4 + 2 * int(line.split(" ", 4)[3], 16))
    names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return tuple(re.sub(r"\((a|p|ip)\)$", "", name).replace("_", " ") for name in names)


def _split_gloss(gloss: str) -> tuple[str, tuple[str, ...]]:
    """The definition before the first quoted example, and the examples."""
    definition = gloss.split('"', 1)[0].strip().rstrip(";:,").strip()
    return definition, tuple(example.strip() for example in re.findall(r'"([^"]{8,})"', gloss))


def entries_text(entries: list[Entry]) -> str:
    """The block as a dictionary page, one entry a line."""
    lines: list[str] = []
    for entry in entries:
        line = f"{', '.join(entry.words)} ({entry.part}): {entry.definition}."
        lines.append(line + "".join(f' "{example}"' for example in entry.examples))
    return "\n".join(lines) + "\n"


def wordnet_conversations(entries: list[Entry], choice: random.Random) -> list[list[Message]]:
    """Three conversations of one to three questions about different words of a block."""
    shuffled = choice.sample(entries, len(entries))
    made: list[list[Message]] = []
    for _ in range(3):
        turns = [shuffled.pop() for _ in range(choice.choice((1, 1, 2, 3))) if shuffled]
        messages = [message for entry in turns for message in _question_and_answer(entry, choice)]
        made.extend([_with_system(messages, choice)] if messages else [])
    return made


def _question_and_answer(entry: Entry, choice: random.Random) -> list[Message]:
    word = choice.choice(entry.words[:2])
    first = word[0].upper() + word[1:]
    example = f' For example: "{choice.choice(entry.examples)}"' if entry.examples else ""
    others = [other for other in entry.words if other != word]
    kinds = ["meaning"] * 4 + ["synonym"] * bool(others) + ["kind"] * bool(entry.kind_of) + ["word"]
    kinds += ["sentence"] * bool(entry.examples)
    asked = choice.choice(kinds)
    if asked == "meaning":
        question = choice.choice(
            (
                "What does {w} mean?",
                "Define {w}.",
                "What is the meaning of the word {w}?",
                "Explain the word {w}.",
            )
        ).format(w=word)
        answer = f"As {_article(entry.part)}, {word} means: {entry.definition}.{example}"
    elif asked == "synonym":
        question = f"What is another word for {word}?"
        answer = f"Another word for {word} is {others[0]}. It means: {entry.definition}."
    elif asked == "kind":
        question = choice.choice(("What kind of thing is {w}?", "What is {w} a kind of?")).format(w=word)
        answer = f"{first} is a kind of {entry.kind_of}. It means: {entry.definition}."
        if entry.part == "verb":
            question = f"What is to {word} a way of?"
            answer = f"To {word} is a way to {entry.kind_of}. It means: {entry.definition}."
    elif asked == "sentence":
        question, answer = f"Use {word} in a sentence.", choice.choice(entry.examples)
    else:
        question, answer = f"Which {entry.part} means: {entry.definition}?", f"{first}.{example}"
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _with_system(messages: list[Message], choice: random.Random) -> list[Message]:
    if choice.random() < 0.7:
        return messages
    content = choice.choice(
        ("You are a helpful assistant.", "Answer briefly.", "You explain words and programs.")
    )
    return [{"role": "system", "content": content}, *messages]


def python_conversations(page: str, choice: random.Random) -> list[list[Message]]:
    """One question about each described function, method and class of a page."""
    made: list[list[Message]] = []
    for name, paragraph in rst.described_objects(page):
        question = choice.choice(
            ("What does `{n}` do?", "Explain `{n}`.", "What is `{n}` in Python?")
        ).format(n=name)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": paragraph}]
        made.append(_with_system(messages, choice))
    return made


def bible_conversations(title: str, verses: list[str], choice: random.Random) -> list[list[Message]]:
    """Requests to continue a verse, one for about every eighth verse of a chapter."""
    made: list[list[Message]] = []
    for at in range(0, len(verses) - 4, 8):
        start = at + choice.randrange(min(8, len(verses) - at - 3))
        question = choice.choice(("Continue: {v}", "How does this go on? {v}", "Go on from here: {v}"))
        made.append(
            [
                {"role": "user", "content": question.format(v=verses[start])},
                {"role": "assistant", "content": " ".join(verses[start + 1 : start + 4])},
            ]
        )
    return made

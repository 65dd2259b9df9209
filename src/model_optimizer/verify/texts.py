"""What the models are given: the texts of this package, or a file of the user's own."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import cast

from model_optimizer.core import Task, UsageError
from model_optimizer.system import user_text

SYNTAX = 'write one text a line, or JSON lines with "text" or "prompt", or with "query" and "document"'
SENTENCE_WORDS = range(5, 41)
DOCUMENTS = 5
"""Documents that each built-in query is scored against: its own and four others."""
LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One input of a model; `pair` is the document that a cross-encoder reads after the query."""

    text: str
    pair: str | None = None


Group = tuple[Sample, ...]
"""What one verdict counts as one text: a prompt, a sentence, or a query with its documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """`source` says where they are from. `whole` texts are cut into sentences for embedding models."""

    source: str
    samples: tuple[Sample, ...]
    whole: bool = False

    def groups(self, task: Task) -> tuple[Group, ...]:
        """The samples that suit a task, in a fixed order. UsageError when there are none."""
        match task:
            case "generate":
                found = _alone(s.text for s in self.samples)
            case "embed":
                found = _alone(_sentences(self.samples) if self.whole else (s.text for s in self.samples))
            case "rerank":
                found = _with_documents(self.samples) if self.whole else _by_query(self.samples)
            case _:
                raise UsageError(
                    f"verification of {task} models by text is not possible",
                    hint=("models that generate, embed or rerank are verified by text",),
                )
        if not found:
            raise UsageError(f"{self.source} holds nothing for a {task} model", hint=(SYNTAX,))
        return found

    def unit(self, task: Task) -> str:
        """What one group is called, in the plural."""
        if task == "rerank":
            return "queries"
        return "sentences" if task == "embed" and self.whole else "texts"


def builtin() -> Texts:
    """The English texts of this package: prose, instructions, code, dialogue and numbers."""
    lines = (
        files("model_optimizer.verify")
        .joinpath("data", "english.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    samples = tuple(Sample(text=json.loads(line)["text"]) for line in lines)
    return Texts(source="the built-in set", samples=samples, whole=True)


def read(path: Path) -> Texts:
    """The user's own texts. UsageError names the line that cannot be used."""
    content = user_text.read(path, largest_bytes=LARGEST_BYTES, hint=(SYNTAX,))
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    as_json = bool(lines) and lines[0][1].lstrip().startswith("{")
    samples = [_from_json(path, n, line) if as_json else Sample(text=line.strip()) for n, line in lines]
    if not samples:
        raise UsageError(f"`{path}` holds no text", hint=(SYNTAX,))
    # The same text twice says nothing twice, and its copy would be its nearest neighbour.
    return Texts(source=str(path), samples=tuple(dict.fromkeys(samples)))


def _from_json(path: Path, number: int, line: str) -> Sample:
    try:
        row = user_text.parse(line)
    except ValueError as error:
        raise UsageError(f"`{path}` line {number} is not JSON", cause=(str(error),), hint=(SYNTAX,)) from None
    fields = cast("dict[str, object]", row) if isinstance(row, dict) else {}
    text = next((fields[key] for key in ("text", "prompt", "query") if key in fields), None)
    pair = next((fields[key] for key in ("document", "pair", "passage") if key in fields), None)
    if not isinstance(text, str) or not text.strip() or not (pair is None or isinstance(pair, str)):
        raise UsageError(f"`{path}` line {number} holds no text", hint=(SYNTAX,))
    return Sample(text=text, pair=pair)


def _alone(texts: Iterator[str]) -> tuple[Group, ...]:
    return tuple((Sample(text=text),) for text in dict.fromkeys(texts))


def _sentences(samples: tuple[Sample, ...]) -> Iterator[str]:
    """Sentences of 5 to 40 words, text by text, so that most have one about the same matter beside them."""
    for sample in samples:
        parts = re.split(r"(?<=[.!?])\s+", sample.text)
        yield from (part for part in parts if len(part.split()) in SENTENCE_WORDS)


def _with_documents(samples: tuple[Sample, ...]) -> tuple[Group, ...]:
    """The first sentence of a text as the query; the rest of it and of others further on as documents."""
    cut = [re.split(r"(?<=[.!?])\s+", s.text, maxsplit=1) for s in samples]
    cut = [parts for parts in cut if len(parts) == 2]
    return tuple(
        tuple(
            Sample(text=query, pair=cut[(at + step * step) % len(cut)][1])
            for step in range(min(DOCUMENTS, len(cut)))
        )
        for at, (query, _) in enumerate(cut)
    )


def _by_query(samples: tuple[Sample, ...]) -> tuple[Group, ...]:
    """Lines with a document, grouped by their query; plain texts serve as documents of each other."""
    if not any(s.pair is not None for s in samples):
        return _crossed(samples)
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.pair is not None:
            groups.setdefault(sample.text, []).append(sample)
    return tuple(tuple(group) for group in groups.values())


def _crossed(samples: tuple[Sample, ...]) -> tuple[Group, ...]:
    texts = [s.text for s in samples]
    others = ((text, [*texts[at:], *texts[:at]]) for at, text in enumerate(texts))
    return tuple(tuple(Sample(text=q, pair=d) for d in islice(ds, DOCUMENTS)) for q, ds in others)

"""What is asked: prompts of a wanted length, new ones for every level, the same ones for the same seed.

Lengths depend on the seed and the request alone, so that levels are comparable; contents depend on the
level too, so that a server that caches prefixes gains nothing from the level before.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec

from model_optimizer.core import UsageError

from .target import Api
from .vocabulary import Encoder, text_of

_PROMPTS_LIMIT = 1 << 30
_QUERY_TOKENS = 16
BLOCK_TOKENS = 512

# Common English words; byte-pair and word-piece vocabularies hold nearly all of them as one token.
_LIST = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point
home water room mother area money story fact month lot right study book eye job word business issue
side kind head house service friend father power hour game line end member law car city community
name president team minute idea body information back parent face others level office door health
person art war history party result change morning reason research girl guy moment air teacher force
education
"""
WORDS = tuple(_LIST.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The JSON members of a request that carry the prompt, and how many tokens are wanted.

    `tokens` is None where nobody knows the length beforehand; the server counts it for each of `texts`.
    `output_tokens` None leaves it to the workload. `text` is the prompt as a JSON string, where it is one.
    """

    members: bytes
    tokens: int | None = None
    texts: int = 1
    output_tokens: int | None = None
    text: bytes | None = None


class Prompts(Protocol):
    """Makes the prompt of one request. `exact` is whether it has exactly the wanted tokens.

    It begins with `blocks`, stretches of BLOCK_TOKENS tokens that are the same wherever their number is, as
    far as the length allows.
    """

    @property
    def kind(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    def make(self, level: int, index: int, tokens: int, blocks: Sequence[int] = ()) -> Prompt: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIds:
    """Random token ids, for interfaces that take them: the length is exact without any tokenizer."""

    api: Api
    ids: Sequence[int]
    seed: int = 0
    shared_prefix: int = 0
    kind: str = "random token ids"
    exact: bool = True

    def make(self, level: int, index: int, tokens: int, blocks: Sequence[int] = ()) -> Prompt:
        drawn: list[int] = []
        for size, dice in stretches(self.seed, level, index, tokens, self.shared_prefix, blocks):
            drawn += dice.choices(self.ids, k=size)
        name = b'"input":' if self.api == "embeddings" else b'"prompt":'
        return Prompt(members=name + msgspec.json.encode(drawn), tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Random text. `write` makes about or exactly so many tokens of it, `kind` says from what."""

    api: Api
    write: Callable[[int, Random], str]
    kind: str
    exact: bool
    seed: int = 0
    shared_prefix: int = 0
    documents: int = 4

    def make(self, level: int, index: int, tokens: int, blocks: Sequence[int] = ()) -> Prompt:
        if self.api in ("rerank", "score"):
            return self._ranking(tokens, Random(f"prompt/{self.seed}/{level}/{index}"))
        parts = stretches(self.seed, level, index, tokens, self.shared_prefix, blocks)
        text = " ".join(self.write(size, dice) for size, dice in parts)
        return Prompt(members=members(self.api, text), tokens=tokens, text=msgspec.json.encode(text))

    def _ranking(self, tokens: int, dice: Random) -> Prompt:
        """A query and `documents` texts; a pair of query and text has the wanted length."""
        query = min(_QUERY_TOKENS, max(1, tokens // 2))
        asked = self.write(query, dice)
        texts = [self.write(max(1, tokens - query), dice) for _ in range(self.documents)]
        return Prompt(members=ranking_members(self.api, asked, texts), tokens=tokens, texts=self.documents)


def stretches(
    seed: int, level: int, index: int, tokens: int, shared: int, blocks: Sequence[int]
) -> Iterator[tuple[int, Random]]:
    """The parts of a prompt, each with its length and the dice that draw it: what all requests of a level
    share, what those with the same blocks share, and what only this one has."""
    left = tokens
    if shared and left:
        yield min(shared, left), Random(f"prefix/{seed}/{level}")
        left -= min(shared, left)
    for block in blocks:
        size = min(BLOCK_TOKENS, left)
        if size:
            yield size, Random(f"block/{seed}/{level}/{block}")
            left -= size
    if left:
        yield left, Random(f"prompt/{seed}/{level}/{index}")


def write_words(tokens: int, dice: Random) -> str:
    """So many common words, each of them about one token."""
    return " ".join(dice.choices(WORDS, k=max(1, tokens)))


def write_exactly(ids: tuple[int, ...], coder: Encoder) -> Callable[[int, Random], str]:
    """Text of exactly so many tokens, by the model's own tokenizer."""
    return lambda tokens, dice: text_of(tokens, ids, coder, dice)


def members(api: Api, text: str) -> bytes:
    """The members of a request's JSON object that carry a text."""
    encoded = msgspec.json.encode(text)
    if api == "chat":
        return b'"messages":[{"role":"user","content":' + encoded + b"}]"
    return (b'"input":' if api == "embeddings" else b'"prompt":') + encoded


def ranking_members(api: Api, query: str, texts: Sequence[str]) -> bytes:
    names = ("query", "documents") if api == "rerank" else ("text_1", "text_2")
    first, second = msgspec.json.encode(query), msgspec.json.encode(texts)
    return b'"%b":%b,"%b":%b' % (names[0].encode(), first, names[1].encode(), second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Real prompts from a file, in its order; after the last comes the first again."""

    prompts: Sequence[Prompt]
    kind: str = "prompts from a file"
    exact: bool = False

    def make(self, level: int, index: int, tokens: int, blocks: Sequence[int] = ()) -> Prompt:
        return self.prompts[index % len(self.prompts)]


def recorded(path: Path, api: Api) -> Recorded:
    """Read a JSONL file. A line is a string, or an object with `prompt` (text or token ids), `messages`,
    `input`, or `query` and `documents`, and perhaps `output_tokens`. Raises UsageError with the line."""
    try:
        if path.stat().st_size > _PROMPTS_LIMIT:
            raise UsageError(f"`{path}` is larger than 1 GiB")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
    found = [of_line(line, api, path, n) for n, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"`{path}` holds no prompts", hint=('write one `{"prompt": "..."}` a line',))
    return Recorded(prompts=found)


class _Line(msgspec.Struct):
    """A line of a prompt file; each member may be left out."""

    prompt: str | list[int] | None = None
    input: str | list[int] | None = None
    messages: list[msgspec.Raw] | None = None
    query: str | None = None
    documents: list[str] | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None


def of_line(line: bytes, api: Api, path: Path, number: int) -> Prompt:
    """What one line of a file of prompts asks. Raises UsageError."""
    try:
        found = msgspec.json.decode(line, type=str | _Line)
        record = _Line(prompt=found) if isinstance(found, str) else found
        wanted = record.output_tokens if record.output_tokens is not None else record.max_tokens
        if wanted is not None and wanted < 1:
            raise ValueError("output_tokens is below 1")
        text = record.prompt or record.input
        encoded = msgspec.json.encode(text) if isinstance(text, str) else None
        return Prompt(members=_members(record, api), output_tokens=wanted, text=encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        hint = ('write `{"prompt": "..."}`, `{"messages": [...]}` or `{"query": "...", "documents": [...]}`',)
        raise UsageError(f"`{path}`, line {number}: not a prompt", cause=(str(error),), hint=hint) from error


def _members(record: _Line, api: Api) -> bytes:
    content = record.prompt or record.input
    if api in ("rerank", "score") and record.query and record.documents:
        return ranking_members(api, record.query, record.documents)
    if api == "chat" and record.messages:
        return b'"messages":' + msgspec.json.encode(record.messages)
    if isinstance(content, str) and api not in ("rerank", "score"):
        return members(api, content)
    if content and api in ("completions", "embeddings"):
        return (b'"input":' if api == "embeddings" else b'"prompt":') + msgspec.json.encode(content)
    raise ValueError(f"nothing in it can be sent to {api}")

"""Recorded traffic: when requests came, how long they were, or what they said.

Formats, told apart by their content:

Mooncake   JSONL with timestamp (ms), input_length, output_length and perhaps hash_ids: blocks of 512 tokens;
           requests with the same ids begin with the same tokens
BurstGPT   CSV with Timestamp (s), Request tokens and Response tokens
Azure      CSV with TIMESTAMP (a date), ContextTokens and GeneratedTokens
own        JSONL with timestamp (s) beside what a line of prompts holds
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec

from model_optimizer.core import UsageError

_LIMIT = 1 << 30
_BLOCK_TOKENS = 512
_FORMATS = "Mooncake (JSONL), BurstGPT or Azure (CSV), or JSONL with `timestamp` in seconds and `prompt`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request: nanoseconds after the first, lengths in tokens, `line` where the text is real.

    `blocks` are ids of stretches of 512 prompt tokens.
    """

    offset_ns: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    line: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Entries in the order of their times. `name` is the file's, with what it holds and its digest."""

    name: str
    entries: Sequence[Entry]
    block_tokens: int = _BLOCK_TOKENS


class _Json(msgspec.Struct):
    timestamp: float
    input_length: int | None = None
    output_length: int | None = None
    hash_ids: list[int] = []
    output_tokens: int | None = None
    max_tokens: int | None = None


def load(path: Path, *, speed: float = 1.0, limit: int | None = None) -> Trace:
    """Read a trace; `speed` 2 replays it in half the time. Raises UsageError with the line."""
    try:
        if path.stat().st_size > _LIMIT:
            raise UsageError(f"`{path}` is larger than 1 GiB", hint=("replay a part of it",))
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
    kind, rows = _rows(path, raw)
    found: list[tuple[float, Entry]] = []
    for number, row in rows:
        try:
            found.append(row())
        except (ValueError, TypeError, KeyError, OverflowError, msgspec.DecodeError) as error:
            message = f"`{path}`, line {number}: not a request"
            raise UsageError(message, cause=(str(error),), hint=(_FORMATS,)) from error
    if not found:
        raise UsageError(f"`{path}` holds no requests", hint=(_FORMATS,))
    found.sort(key=lambda pair: pair[0])
    begin = found[0][0]
    entries = [_at(entry, (time - begin) / speed) for time, entry in found[:limit]]
    digest = hashlib.sha256(raw).hexdigest()[:12]
    faster = f", speed {speed:g}" if speed != 1 else ""
    name = f"{path.name} ({kind}, {len(entries)} requests, sha256 {digest}{faster})"
    return Trace(name=name, entries=entries)


def _at(entry: Entry, seconds: float) -> Entry:
    return replace(entry, offset_ns=round(seconds * 1e9))


class _Row:
    """Reads one row when it is called, so that an error can be told with its line."""

    def __init__(self, kind: str, value: bytes | Mapping[str, str]) -> None:
        self._kind = kind
        self._value = value

    def __call__(self) -> tuple[float, Entry]:
        return (
            _from_json(self._value) if isinstance(self._value, bytes) else _from_csv(self._kind, self._value)
        )


def _rows(path: Path, raw: bytes) -> tuple[str, Iterator[tuple[int, _Row]]]:
    start = raw.lstrip(b"\xef\xbb\xbf \r\n")[:1]
    if start == b"{":
        lines = raw.splitlines()
        first = next((line for line in lines if line.strip()), b"")
        kind = "Mooncake" if b'"input_length"' in first else "prompts"
        return kind, ((n, _Row(kind, line)) for n, line in enumerate(lines, 1) if line.strip())
    try:
        table = csv.DictReader(raw.decode("utf-8-sig").splitlines())
        names = {name.strip() for name in table.fieldnames or ()}
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"`{path}` is not a trace", cause=(str(error),), hint=(_FORMATS,)) from error
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= names:
        kind = "Azure"
    elif {"Timestamp", "Request tokens", "Response tokens"} <= names:
        kind = "BurstGPT"
    else:
        raise UsageError(f"`{path}` is not a trace of a known format", hint=(_FORMATS,))
    return kind, ((n, _Row(kind, row)) for n, row in enumerate(table, 2))


def _from_json(line: bytes) -> tuple[float, Entry]:
    row = msgspec.json.decode(line, type=_Json)
    if row.input_length is None:
        output = row.output_tokens if row.output_tokens is not None else row.max_tokens
        return _seconds(row.timestamp), Entry(offset_ns=0, output_tokens=output, line=line)
    entry = Entry(
        offset_ns=0,
        prompt_tokens=_tokens(row.input_length),
        output_tokens=_tokens(row.output_length or 1),
        blocks=tuple(row.hash_ids),
    )
    return _seconds(row.timestamp / 1000), entry


def _from_csv(kind: str, row: Mapping[str, str]) -> tuple[float, Entry]:
    if kind == "Azure":
        time, prompt, output = row["TIMESTAMP"], row["ContextTokens"], row["GeneratedTokens"]
        whole, _, part = time.partition(".")  # seven digits, which fromisoformat does not read
        digits = part.partition("+")[0].rstrip("Z")
        seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{digits or 0}")
    else:
        prompt, output = row["Request tokens"], row["Response tokens"]
        seconds = float(row["Timestamp"])
    entry = Entry(offset_ns=0, prompt_tokens=_tokens(int(prompt)), output_tokens=_tokens(int(output) or 1))
    return _seconds(seconds), entry


def _seconds(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("the time is not a number")
    return value


def _tokens(value: int) -> int:
    if value < 0:
        raise ValueError("a number of tokens is below 0")
    return max(1, value)

"""Calibration data as token ids: a user's samples or built-in ones, in the model's own chat format.

A sample is {"text": ...} or {"messages": [{"role", "content"}, ...]}. The built-in set is what the standard
library of the environment's Python says of itself (documentation and code), so nothing is shipped or
downloaded, and the same environment always gives the same texts. It is English and Python and knows nothing
of a user's domain.
"""

import ast
import hashlib
import json
import random
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _contract import brief, fail

MODULES = (
    "argparse", "ast", "asyncio/base_events", "asyncio/tasks", "base64", "calendar", "codecs",
    "collections/__init__", "concurrent/futures/_base", "configparser", "contextlib", "csv", "datetime",
    "decimal", "difflib", "email/message", "enum", "fractions", "functools", "glob", "gzip", "heapq",
    "html/parser", "http/client", "imaplib", "inspect", "ipaddress", "json/__init__", "logging/__init__",
    "mailbox", "multiprocessing/pool", "numbers", "optparse", "os", "pathlib", "pickle", "platform",
    "pprint", "queue", "random", "shutil", "smtplib", "socket", "sqlite3/dump", "ssl", "statistics",
    "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "traceback", "turtle", "typing",
    "unittest/case", "unittest/mock", "urllib/parse", "urllib/request", "uuid", "warnings", "weakref",
    "xml/dom/minidom", "zipfile",
)  # fmt: skip
CHARACTERS = 8
"""Characters that make at least one token; a sample is built long enough and then cut."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """`ids` holds one list of token ids a sample."""

    ids: tuple[tuple[int, ...], ...]
    digest: str
    notes: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return sum(len(sample) for sample in self.ids)


def read_calibration(tokenizer: Any, asked: Mapping[str, Any], task: str) -> Calibration:
    """`asked` has `samples` (None for the built-in set), `count` and `length` in tokens."""
    length, count = int(asked["length"]), int(asked["count"])
    samples: Sequence[Mapping[str, Any]] | None = asked.get("samples")
    notes = []
    if samples is None:
        samples = builtin(count, length, chat=task == "generate" and bool(tokenizer.chat_template))
        notes.append(
            "calibrated with the built-in texts (English and Python): weaker than texts of your own load, "
            "which --calibration takes"
        )
    ids = tuple(tuple(encode(tokenizer, sample)[:length]) for sample in samples[:count])
    ids = tuple(sample for sample in ids if len(sample) > 1)
    if not ids:
        fail("calibration-data", "no sample of the calibration data has two tokens")
    shortest, longest = min(map(len, ids)), max(map(len, ids))
    lengths = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
    notes.insert(0, f"calibration: {len(ids)} samples of {lengths} tokens, {sum(map(len, ids)):,} in all")
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    return Calibration(ids=ids, digest=f"sha256:{digest}", notes=tuple(notes))


def encode(tokenizer: Any, sample: Mapping[str, Any]) -> list[int]:
    messages = sample.get("messages")
    if not messages:
        return list(tokenizer(str(sample.get("text", "")))["input_ids"])
    if not tokenizer.chat_template:
        return list(tokenizer("\n\n".join(str(m.get("content", "")) for m in messages))["input_ids"])
    try:
        found = tokenizer.apply_chat_template(list(messages), tokenize=True)
    except Exception as error:  # noqa: BLE001 - templates are programs of somebody else
        fail(
            "calibration-data",
            "the model's chat template refuses a sample of the calibration data",
            [brief(error)],
            ["roles are those that the template knows, most often user and assistant in turn"],
        )
    return list(found["input_ids"] if isinstance(found, Mapping) else found)


def builtin(count: int, length: int, *, chat: bool) -> list[dict[str, Any]]:
    """`count` samples of about `length` tokens: questions and answers for a chat model, else running text."""
    parts = [part for name in MODULES for part in _parts(name)]
    made = []
    for number in range(count):
        dice = random.Random(number)
        turns: list[tuple[str, str]] = []
        while sum(len(answer) for _, answer in turns) < length * CHARACTERS:
            turns.append(dice.choice(parts))
        if chat:
            messages = []
            for about, answer in turns:
                messages.append({"role": "user", "content": dice.choice(QUESTIONS).format(about)})
                messages.append({"role": "assistant", "content": answer})
            made.append({"messages": messages})
        else:
            made.append({"text": "\n\n".join(answer for _, answer in turns)})
    return made


QUESTIONS = (
    "What does `{}` do?",
    "Explain `{}` to me.",
    "How is `{}` written?",
    "I am reading code that calls `{}`. What should I know about it?",
)


def _parts(module: str) -> Iterable[tuple[str, str]]:
    """(name, what its source says of it) of every documented function and class of a module."""
    path = Path(sysconfig.get_paths()["stdlib"], f"{module}.py")
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    name, lines = module.replace("/__init__", "").replace("/", "."), source.splitlines()
    if text := ast.get_docstring(tree):
        yield name, text
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
            code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            yield f"{name}.{node.name}", text if len(code) > 2000 else f"{text}\n\n```python\n{code}\n```"

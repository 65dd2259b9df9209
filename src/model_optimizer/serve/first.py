"""The first real request: a server that is up but cannot compute, or answers nonsense, is not ready."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from model_optimizer.core import Workload

TOKENS = 8
"""As many as it takes to tell a first token that repeats for ever from an answer."""

PROMPT = "The capital of France is"


def question(work: Workload, name: str) -> tuple[str, Mapping[str, object] | None]:
    """(path, body); no body for a question that is a GET."""
    if work.task == "vision":
        return f"/v2/models/{name}/ready", None  # its worker computed before it listened
    if work.task == "embed":
        return "/v1/embeddings", {"model": name, "input": "Hello"}
    if work.task == "rerank":
        return "/v1/rerank", {"model": name, "query": "Hello", "documents": ["Hello"]}
    return "/v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}


def wrong(body: bytes, work: Workload) -> str | None:
    """What is wrong with an answer; None when nothing is."""
    try:
        if work.task == "embed":
            return _wrong_vector(msgspec.json.decode(body, type=_Embeddings).data[0].embedding)
        if work.task == "rerank":
            score = msgspec.json.decode(body, type=_Scores).results[0].relevance_score
            return None if math.isfinite(score) else f"a score that is no number: {score}"
        if work.task == "vision":
            return None
        return _wrong_text(msgspec.json.decode(body, type=_Completion))
    except (msgspec.MsgspecError, IndexError) as error:
        return f"no answer of the agreed form ({error})"


def _wrong_vector(vector: tuple[float, ...]) -> str | None:
    if not vector:
        return "a vector without numbers"
    if not all(math.isfinite(x) for x in vector):
        return "a vector with numbers that are none"
    return None if any(vector) else "a vector of zeros"


def _wrong_text(found: "_Completion") -> str | None:
    """Logits that are no numbers make a sampler take the first token of the vocabulary for ever, which is
    an exclamation mark in most of them."""
    count = found.usage.completion_tokens
    if count < 1:
        return "an answer without a token"
    if count > TOKENS:
        return f"{count} tokens where {TOKENS} were asked for"
    if not found.choices:
        return "an answer without a choice"
    text = (found.choices[0].text or "").strip()
    if len(text) >= TOKENS and not text.strip("!"):
        return f"nothing but exclamation marks: {text[:20]}"
    if text and not any(c.isprintable() for c in text):
        return "nothing but control characters"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vector:
    embedding: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Embeddings:
    data: tuple[_Vector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Score:
    relevance_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    results: tuple[_Score, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    usage: _Usage
    choices: tuple[_Choice, ...] = ()

"""Finds the claim that somebody means, by the words that they use."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache

from model_optimizer.facts import folklore
from model_optimizer.facts.folklore import Claim

LEAST = 0.42
"""The share of a question's weight that a claim must hold to be the answer."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)*", re.ASCII)
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "do",
        "does",
        "did",
        "for",
        "from",
        "has",
        "have",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "please",
        "should",
        "so",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "they",
        "this",
        "to",
        "use",
        "used",
        "using",
        "was",
        "we",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "really",
        "actually",
        "true",
        "false",
        "correct",
        "right",
        "about",
        "mean",
        "means",
        "s",
        "t",
    ]
)
_SAME = {
    "gpus": "gpu", "cards": "gpu", "card": "gpu", "graphics": "gpu",
    "notebook": "laptop", "mobile": "laptop",
    "speed": "fast", "faster": "fast", "quick": "fast", "slower": "slow", "memory": "vram", "ram": "vram",
    "docker": "container", "image": "container", "images": "container",
    "containers": "container",
    "needs": "need", "needed": "need", "requires": "need", "require": "need", "required": "need",
    "must": "need",
    "supports": "support", "supported": "support", "works": "support", "work": "support", "run": "support",
    "runs": "support", "quantised": "quantized", "quantisation": "quantization",
    "quantize": "quantization",
    "quantized": "quantization", "tokens": "token", "requests": "request", "trt": "tensorrt",
    "torch": "pytorch",
    "nvidia-smi": "smi", "drivers": "driver", "kernels": "kernel", "graphs": "graph", "blocks": "block",
    "page": "block", "pages": "block", "vllms": "vllm", "embeddings": "embedding", "engines": "engine",
    "flags": "flag", "option": "flag", "options": "flag", "installing": "install", "installs": "install",
    "calibrated": "calibration", "calibrate": "calibration", "tflops": "flops", "bandwidths": "bandwidth",
    "prompts": "prompt", "weights": "weight", "shapes": "shape", "opsets": "opset", "watts": "watt",
    "disable": "off", "disabled": "off", "disabling": "off", "enable": "on", "enabled": "on",
}  # fmt: skip


def tokens(text: str) -> tuple[str, ...]:
    """The words that carry meaning: lower case, numbers apart, the field's synonyms as one."""
    plain = text.lower().replace("_", " ").replace("-", " ")
    found = (_SAME.get(str(word), str(word)) for word in _WORD.findall(plain))
    return tuple(word for word in found if word not in _STOP)


@cache
def _index() -> tuple[tuple[tuple[Claim, tuple[frozenset[str], ...]], ...], Mapping[str, float]]:
    """Each claim with the word sets of what it is found by, and the weight of every word."""
    rows = tuple(
        (claim, tuple(frozenset(tokens(t)) for t in (claim.said, *claim.asked)))
        for claim in folklore.claims()
    )
    counts = Counter(word for _, sets in rows for word in {w for words in sets for w in words})
    weights = {word: 1 + math.log(len(rows) / n) for word, n in counts.items()}
    return rows, weights


def search(text: str, *, most: int = 4) -> Sequence[tuple[Claim, float]]:
    """The claims that fit best, best first, each with a score from 0 to 1 (all words of both agree)."""
    rows, weights = _index()
    wanted = _spelled(tokens(text), weights)
    if not wanted:
        return ()
    scored = [(claim, max(_score(wanted, words, weights) for words in sets)) for claim, sets in rows]
    return sorted((pair for pair in scored if pair[1] > 0), key=lambda pair: -pair[1])[:most]


def _spelled(found: Iterable[str], weights: Mapping[str, float]) -> frozenset[str]:
    """Words that no claim has are taken for the nearest one that some claim has, when it is very near."""
    result: set[str] = set()
    for word in list(found)[:60]:
        if word in weights or len(word) < 5 or word.isdigit():
            result.add(word)
        else:
            result.add(next(iter(get_close_matches(word, weights, n=1, cutoff=0.82)), word))
    return frozenset(result)


def _score(wanted: frozenset[str], words: frozenset[str], weights: Mapping[str, float]) -> float:
    """The harmonic mean of how much of the question and how much of the claim is in the other."""
    shared = sum(weights.get(word, 0.0) for word in wanted & words)
    if not shared:
        return 0.0
    unknown = 2.5
    asked = sum(weights.get(word, unknown) for word in wanted)
    said = sum(weights.get(word, unknown) for word in words)
    recall, precision = shared / asked, shared / said
    return 2 * recall * precision / (recall + precision)

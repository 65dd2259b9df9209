"""Names of layers as descriptions write them: whole names, prefixes, and regular expressions behind `re:`."""

import re
from collections.abc import Iterable

from model_optimizer.core import UsageError

LONGEST_PATTERN = 500
NESTED = re.compile(r"\([^()]*[+*|][^()]*\)[+*{]")
"""A repetition of a repetition or of alternatives, whose matching time may double with every letter."""

REPETITION = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
MOST_REPETITIONS = 5
"""Of one pattern: each multiplies the matching time by the length of a name."""


def matches(pattern: str, name: str) -> bool:
    """compressed-tensors: the whole name, or a regular expression behind `re:`.

    UsageError for a pattern that is no regular expression or may take for ever.
    """
    if not pattern.startswith("re:"):
        return name == pattern or name.endswith(f".{pattern}")
    slow = NESTED.search(pattern) or len(REPETITION.findall(pattern)) > MOST_REPETITIONS
    if len(pattern) > LONGEST_PATTERN or slow:
        raise UsageError(
            "a pattern in `quantization_config` is refused",
            cause=(f"`{pattern[:80]}` could take for ever to match",),
            hint=("name layers by their names, or by simple patterns such as `re:.*o_proj$`",),
        )
    try:
        return re.match(pattern[3:], name) is not None
    except re.error as error:
        raise UsageError(
            "a pattern in `quantization_config` is no regular expression", cause=(f"{pattern[:80]}: {error}",)
        ) from None


def idle(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Patterns that no name answers to, whatever the dialect: a regular expression, or letters of a name.

    A head that is tied to the embedding has no tensors of its own, so that patterns for it are not counted.
    """
    known = tuple(names)

    def answers(pattern: str) -> bool:
        if pattern.startswith("re:"):
            return any(matches(pattern, name) for name in known)
        words = [word for word in pattern.split("*") if word]
        return any(all(word in name for word in words) for name in known)

    return tuple(p for p in patterns if "head" not in p and not answers(p))

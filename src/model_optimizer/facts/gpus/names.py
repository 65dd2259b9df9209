"""Makes one spelling of the many that people, shops and drivers use for a GPU."""

import re

_NOISE = frozenset({
    "nvidia", "amd", "geforce", "tesla", "instinct", "gpu", "graphics", "card", "accelerator", "tensor",
    "core", "edition", "nvgpu",
})  # fmt: skip
_SAME = {"mobile": "laptop", "notebook": "laptop"}
_SIZE = re.compile(r"\d+gb")
_MEMORY_KIND = re.compile(r"(?:hbm|gddr|lpddr)\d\w*")


def words(text: str) -> tuple[str, ...]:
    """`NVIDIA GeForce RTX 4060 Laptop GPU`, `rtx4060 laptop` -> ("rtx", "4060", "laptop").

    Order is kept. Applying it to its own joined answer changes nothing.
    """
    line = re.sub(r"[^a-z0-9]+", " ", text.lower())
    line = re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", line)
    line = re.sub(r"(?<=\d)(ti|super|laptop|mobile|notebook|sxm\d?|pcie|nvl)\b", r" \1", line)
    line = re.sub(r"\b(\d{4})m\b", r"\1 laptop", line)
    line = " ".join(_SAME.get(word, word) for word in line.split() if word not in _NOISE)
    line = re.sub(r"\bsxm\d\b", "sxm", line)
    line = re.sub(r"\b(\d+) ?(?:gb|gib|g)\b", r"\1gb", line)
    # RTX PRO 6000 and RTX 6000 are different products: the number belongs to the word before it.
    line = re.sub(r"\bpro (?=\d)", "pro", line)
    return tuple(line.split())


def core(spelling: frozenset[str]) -> frozenset[str]:
    """Without the words that tell the size and the kind of memory."""
    return frozenset(w for w in spelling if not _SIZE.fullmatch(w) and not _MEMORY_KIND.fullmatch(w))

"""Text files that a user names: whatever they are, the answer is their text or one clear error."""

import json
import stat
from pathlib import Path

from model_optimizer.core import UsageError
from model_optimizer.core.units import show_bytes


def read(path: Path, *, largest_bytes: int, hint: tuple[str, ...] = (), reference: str | None = None) -> str:
    """The text of a regular file in UTF-8, without a byte order mark. Raises UsageError.

    Pipes and devices are refused: one that nobody writes to would be waited for, and one without an end
    would fill the memory.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(
                f"`{path}` is no regular file",
                hint=("write its texts to a file first, and name that",),
                reference=reference,
            )
        if found.st_size > largest_bytes:
            raise UsageError(
                f"`{path}` is larger than {show_bytes(largest_bytes)}",
                hint=("take a sample of it", *hint),
                reference=reference,
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"`{path}` cannot be read as text", cause=(str(error),), hint=hint, reference=reference
        ) from error
    if "\0" in text:
        place = text.index("\0")
        raise UsageError(
            f"`{path}` is no text", cause=(f"character {place + 1} is zero",), hint=hint, reference=reference
        )
    return text


def parse(line: str) -> object:
    """One line of JSON. ValueError also for what nests too deeply and for halves of characters."""
    try:
        found: object = json.loads(line)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    if "\\u" in line:
        json.dumps(found, ensure_ascii=False).encode()
    return found

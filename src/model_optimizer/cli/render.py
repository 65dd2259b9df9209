"""Nouns to text. Pure functions, so that every screen is a snapshot in a test."""

import json

from model_optimizer.core import MoptError


def error_text(error: MoptError) -> str:
    lines = [f"error[{error.reference}]: {error.message}"]
    lines += [f"cause: {line}" for line in error.cause]
    lines += [f"hint: {line}" for line in error.hint]
    return "\n".join(printable(line).replace("\n", "\\n") for line in lines) + "\n"


def error_json(error: MoptError) -> str:
    body = {
        "reference": error.reference,
        "message": error.message,
        "cause": error.cause,
        "hint": error.hint,
    }
    return json.dumps({"error": body}, indent=2, ensure_ascii=False) + "\n"


def printable(text: str) -> str:
    """Text from outside, safe for a terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def table(rows: list[list[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Columns that line up; the first row is the heading. `right` holds columns aligned right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"

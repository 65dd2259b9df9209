"""Server-sent events, read from a whole body. The standard is WHATWG HTML, section 9.2."""

import re
from collections.abc import Iterator

_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def events(body: bytes) -> Iterator[tuple[bytes, int]]:
    """The data of each event, and the offset in the body where its last line ended.

    Comments, other fields and events without data are passed over. What comes after the last empty
    line is an event too: some servers close without one.
    """
    begin = len(_BOM) if body.startswith(_BOM) else 0
    for blank in _BLANK.finditer(body):
        if (data := _data(body[begin : blank.start()])) is not None:
            yield data, blank.end()
        begin = blank.end()
    if (data := _data(body[begin:])) is not None:
        yield data, len(body)


def _data(block: bytes) -> bytes | None:
    if block.startswith(b"data:") and b"\n" not in block and b"\r" not in block:
        return block[6:] if block.startswith(b" ", 5) else block[5:]
    lines: list[bytes] = []
    for line in _LINE.split(block):
        if line == b"data":
            lines.append(b"")
        elif line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b" ", 5) else line[5:])
    return b"\n".join(lines) if lines else None

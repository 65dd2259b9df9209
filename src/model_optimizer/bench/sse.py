"""Server-sent events, read from a whole body. The standard is WHATWG HTML, section 9.2."""

import re

_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def events(body: bytes) -> list[tuple[bytes, int]]:
    """The data of each event, and the offset in the body where its last line ended.

    Comments, other fields and events without data are passed over. What comes after the last empty
    line is an event too: some servers close without one.
    """
    found: list[tuple[bytes, int]] = []
    end = len(_BOM) if body.startswith(_BOM) else 0
    body = body[end:]
    for block, after in _blocks(body):
        end += len(block) + after
        if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
            found.append((block[6:], end))  # what nearly all servers send
        elif (data := _data(block)) is not None:
            found.append((data, end))
    return found


def _blocks(body: bytes) -> list[tuple[bytes, int]]:
    """What stands between empty lines, and the size of the empty line after it."""
    if b"\r" not in body:
        *blocks, last = body.split(b"\n\n")
        return [*((block, 2) for block in blocks), (last, 0)]
    found: list[tuple[bytes, int]] = []
    begin = 0
    for blank in _BLANK.finditer(body):
        found.append((body[begin : blank.start()], blank.end() - blank.start()))
        begin = blank.end()
    return [*found, (body[begin:], 0)]


def _data(block: bytes) -> bytes | None:
    lines: list[bytes] = []
    for line in _LINE.split(block):
        if line == b"data":
            lines.append(b"")
        elif line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b" ", 5) else line[5:])
    return b"\n".join(lines) if lines else None

"""Server-sent events, read from a whole body. The standard is WHATWG HTML, section 9.2."""

import re
from itertools import accumulate

_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def events(body: bytes) -> list[tuple[bytes, int]]:
    """The data of each event, and the offset in the body where its last line ended.

    Comments, other fields and events without data are passed over. What comes after the last empty
    line is an event too: some servers close without one.
    """
    blocks = body.split(b"\n\n")
    if _is_plain(body, blocks):
        ends = accumulate(len(block) + 2 for block in blocks)
        return [(block[6:], end) for block, end in zip(blocks[:-1], ends, strict=False)]
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


def _is_plain(body: bytes, blocks: list[bytes]) -> bool:
    """Whether it is one line of data after the other, with an empty line after each: the common case."""
    if blocks[-1] or b"\r" in body or body.count(b"\n") != 2 * (len(blocks) - 1):
        return False
    return body.count(b"\n\ndata: ") == len(blocks) - 2 and body.startswith(b"data: ")


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

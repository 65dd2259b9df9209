"""HTTP/1.1 answers as bytes: where one ends while it arrives, and what was in it afterwards.

Nothing here touches a socket or a clock. `Framer` looks at as little as it can, because it runs while
other requests wait to be timed; `read_answer` takes the same bytes apart when the load is over.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

HEAD_LIMIT = 1 << 16
_SIZE_LINE_LIMIT = 1 << 12
_SIZE_DIGITS = 12
_AFTER_CHUNK = (b"\r\n", b"\r", b"")
END_OF_HEAD = b"\r\n\r\n"


class WireError(Exception):
    """The bytes are not an HTTP/1.1 answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and headers (names in lower case; of a repeated one the last). `size` is in bytes."""

    status: int
    reason: str
    headers: Mapping[str, str]
    size: int
    version: str = "HTTP/1.1"

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def length(self) -> int | None:
        """Bytes of the body where the head tells; None when it ends with the connection."""
        if self.status in (204, 304):
            return 0
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not text.isascii() or not text.isdigit():
            raise WireError(f"content-length is `{text[:40]}`")
        return int(text)

    @property
    def keeps_alive(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return "close" not in wish and (self.version != "HTTP/1.0" or "keep-alive" in wish)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer taken apart. `complete` is False when the connection ended before the body did.

    The i-th stretch of the body ends at `ends[i]` of the body, which is `raw_ends[i]` of what was received
    (a body without chunks is one stretch). What was received up to `piece_ends[i]` arrived at `times_ns[i]`.
    """

    head: Head
    body: bytes
    complete: bool
    ends: Sequence[int]
    raw_ends: Sequence[int]
    piece_ends: Sequence[int]
    times_ns: Sequence[int]

    def arrived_ns(self, offset: int) -> int:
        """When the byte before `offset` of the body arrived."""
        stretch = bisect_left(self.ends, offset)
        raw = self.raw_ends[stretch] - self.ends[stretch] + offset
        return self.times_ns[bisect_left(self.piece_ends, raw)]

    def arrivals_ns(self, offsets: Iterable[int]) -> list[int]:
        """The same for many offsets in ascending order."""
        ends, raw_ends, piece_ends, times = self.ends, self.raw_ends, self.piece_ends, self.times_ns
        found: list[int] = []
        stretch = piece = 0
        for offset in offsets:
            while ends[stretch] < offset:
                stretch += 1
            raw = raw_ends[stretch] - ends[stretch] + offset
            while piece_ends[piece] < raw:
                piece += 1
            found.append(times[piece])
        return found


def parse_head(raw: bytes) -> Head | None:
    """The head of the final answer at the beginning of `raw` (1xx ones are passed over).

    None while it is not whole. Raises WireError.
    """
    begin = 0
    while True:
        end = raw.find(END_OF_HEAD, begin)
        if end < 0:
            if len(raw) - begin > HEAD_LIMIT:
                raise WireError(f"no end of the header in {HEAD_LIMIT} bytes")
            if len(raw) - begin >= 5 and not raw.startswith(b"HTTP/", begin):
                raise WireError(f"the answer begins with {raw[begin : begin + 20]!r}")
            return None
        head = _head(raw[begin:end], end + len(END_OF_HEAD))
        if not 100 <= head.status < 200:
            return head
        begin = end + len(END_OF_HEAD)


def _head(raw: bytes, size: int) -> Head:
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise WireError(f"the answer begins with `{first[:60]}`")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Head(status=int(status), reason=reason[:100], headers=headers, size=size, version=version)


class Framer:
    """Told of each piece as it arrives, says when the answer is whole.

    `pieces` is the list that the caller adds to. A chunked body (`walks`) ends with an empty line: only
    when a piece does too, as far as one sees, is the body walked, and then from where the last walk
    stopped. So a token costs one comparison.
    """

    __slots__ = ("_position", "_remaining", "_walked", "excess", "head", "pieces", "walks")

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.head: Head | None = None
        self.walks = False
        self.excess = False
        self._remaining: int | None = None
        self._walked = 0  # pieces that were looked at
        self._position = 0  # where the next chunk begins, counted from the first piece not looked at

    def advance(self) -> bool:
        """True when the answer ends with the last piece. Raises WireError."""
        if self.head is None:
            return self._begin()
        if self.walks:
            last = self.pieces[-1]
            return (len(last) < len(END_OF_HEAD) or last.endswith(END_OF_HEAD)) and self._walk()
        return self._count(len(self.pieces[-1]))

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request after this answer."""
        return self.head is not None and self.head.keeps_alive and not self.excess

    @property
    def ends_with_connection(self) -> bool:
        return self.head is not None and not self.walks and self._remaining is None

    def _begin(self) -> bool:
        raw = b"".join(self.pieces)
        self.head = head = parse_head(raw)
        if head is None:
            return False
        if head.chunked:
            self.walks = True
            self._position = head.size
            return self._walk()
        self._remaining = head.length
        return self._count(len(raw) - head.size)

    def _count(self, size: int) -> bool:
        if self._remaining is None:
            return False
        self._remaining -= size
        self.excess = self._remaining < 0
        return self._remaining <= 0

    def _walk(self) -> bool:
        pieces = self.pieces[self._walked :]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        position, total = self._position, len(data)
        if position < total:
            position = pass_chunks(data, position, [], [])
        while position < total:
            found = chunk_at(data, position)
            if found is None:  # keep what belongs to an unfinished size line
                last = len(pieces[-1])
                if position >= total - last:
                    self._walked += len(pieces) - 1
                    position -= total - last
                self._position = position
                return False
            begin, size = found
            if not size:
                self.excess = begin < total
                return True
            position = begin + size + 2
        self._walked += len(pieces)
        self._position = position - total
        return False


def pass_chunks(data: bytes, position: int, begins: list[int], ends: list[int]) -> int:
    """Note where the data of each plain, whole chunk begins and ends; where the first other one is."""
    find, total = data.find, len(data)
    sizes: dict[bytes, int] = {}  # most chunks of a stream have one of a few sizes
    while True:
        line = find(b"\r\n", position, position + 10)
        text = data[position:line]
        size = sizes.get(text)
        if size is None:
            if line < 0 or not text.isalnum():
                return position
            try:
                size = sizes[text] = int(text, 16)
            except ValueError:
                return position
        if not size:
            return position
        after = line + 4 + size
        if after > total or data[after - 2 : after] != b"\r\n":
            return position
        begins.append(line + 2)
        ends.append(after - 2)
        position = after


def chunk_at(data: bytes, position: int) -> tuple[int, int] | None:
    """Where the data of the chunk at `position` begins, and its size; None while that is not known.

    For the last chunk, of size 0, it is where the whole message ends, after its trailers.
    """
    end = data.find(b"\r\n", position)
    if end < 0 or end - position > _SIZE_LINE_LIMIT:
        if len(data) - position > _SIZE_LINE_LIMIT:
            raise WireError("a chunk has no size")
        return None
    text = data[position:end]
    if not text.isalnum():
        text = text.partition(b";")[0].strip()
    try:
        size = int(text, 16) if text.isalnum() and len(text) <= _SIZE_DIGITS else -1
    except ValueError:
        size = -1
    if size > 0:
        return end + 2, size
    if size < 0:
        raise WireError(f"a chunk has the size {text[:20]!r}")
    last = data.find(END_OF_HEAD, end)
    return None if last < 0 else (last + 4, 0)


def read_answer(pieces: Sequence[bytes], times_ns: Sequence[int]) -> Answer:
    """Take a recorded answer apart: `pieces[i]` arrived at `times_ns[i]`. Raises WireError."""
    raw = b"".join(pieces)
    head = parse_head(raw)
    if head is None:
        raise WireError("the connection ended within the header" if raw else "nothing came back")
    piece_ends = list(accumulate(map(len, pieces)))
    if head.chunked:
        return _read_chunked(head, raw, piece_ends, times_ns)
    length = head.length
    body = raw[head.size :] if length is None else raw[head.size : head.size + length]
    return Answer(
        head=head,
        body=body,
        complete=length is None or len(body) == length,
        ends=(len(body),),
        raw_ends=(head.size + len(body),),
        piece_ends=piece_ends,
        times_ns=times_ns,
    )


def _read_chunked(head: Head, raw: bytes, piece_ends: list[int], times_ns: Sequence[int]) -> Answer:
    begins: list[int] = []
    raw_ends: list[int] = []
    position, complete = head.size, False
    while position < len(raw):
        position = pass_chunks(raw, position, begins, raw_ends)
        found = chunk_at(raw, position)
        if found is None:
            break
        begin, size = found
        if not size:
            complete = True
            break
        position = min(begin + size, len(raw))
        begins.append(begin)
        raw_ends.append(position)
        if raw[position : position + 2] not in _AFTER_CHUNK:
            raise WireError("a chunk is longer than its size")
        position += 2
    parts = [raw[begin:end] for begin, end in zip(begins, raw_ends, strict=True)]
    return Answer(
        head=head,
        body=b"".join(parts),
        complete=complete,
        ends=list(accumulate(map(len, parts))) or (0,),
        raw_ends=raw_ends or (head.size,),
        piece_ends=piece_ends,
        times_ns=times_ns,
    )

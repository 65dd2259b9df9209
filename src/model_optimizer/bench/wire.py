"""HTTP/1.1 answers as bytes: where one ends while it arrives, and what was in it afterwards.

Nothing here touches a socket or a clock. `Framer` looks at as little as it can, because it runs while
other requests wait to be timed; `read_answer` takes the same bytes apart when the load is over.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEAD_LIMIT = 1 << 16
_SIZE_LINE_LIMIT = 1 << 12
_END_OF_HEAD = b"\r\n\r\n"


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

    `ends` and `times_ns` are equally long: the body up to offset `ends[i]` had arrived at `times_ns[i]`.
    """

    head: Head
    body: bytes
    complete: bool
    ends: Sequence[int]
    times_ns: Sequence[int]

    def arrived_ns(self, offset: int) -> int:
        """When the byte before `offset` of the body arrived."""
        return self.times_ns[min(bisect_left(self.ends, offset), len(self.times_ns) - 1)]


def parse_head(raw: bytes) -> Head | None:
    """The head of the final answer at the beginning of `raw` (1xx ones are passed over).

    None while it is not whole. Raises WireError.
    """
    begin = 0
    while True:
        end = raw.find(_END_OF_HEAD, begin)
        if end < 0:
            if len(raw) - begin > HEAD_LIMIT:
                raise WireError(f"no end of the header in {HEAD_LIMIT} bytes")
            if len(raw) - begin >= 5 and not raw.startswith(b"HTTP/", begin):
                raise WireError(f"the answer begins with {raw[begin : begin + 20]!r}")
            return None
        head = _head(raw[begin:end], end + len(_END_OF_HEAD))
        if not 100 <= head.status < 200:
            return head
        begin = end + len(_END_OF_HEAD)


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
    """Fed with each piece as it arrives, says when the answer is whole.

    A chunked body is walked only when a piece ends like one (an empty line), and then from where the
    last walk stopped: a token costs one comparison.
    """

    __slots__ = ("_remaining", "_skip", "_unread", "_walk", "excess", "head")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.excess = False
        self._walk = False
        self._remaining: int | None = None
        self._skip = 0
        self._unread: list[bytes] = []

    def feed(self, piece: bytes) -> bool:
        """True when the answer ends with this piece. Raises WireError."""
        if self.head is None:
            self._unread.append(piece)
            return self._begin()
        if self._walk:
            self._unread.append(piece)
            if len(piece) >= 4 and not piece.endswith(_END_OF_HEAD):
                return False
            return self._walk_chunks()
        if self._remaining is None:
            return False
        self._remaining -= len(piece)
        self.excess = self._remaining < 0
        return self._remaining <= 0

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request after this answer."""
        return self.head is not None and self.head.keeps_alive and not self.excess

    @property
    def ends_with_connection(self) -> bool:
        return self.head is not None and not self._walk and self._remaining is None

    def _begin(self) -> bool:
        raw = b"".join(self._unread)
        self.head = head = parse_head(raw)
        if head is None:
            return False
        self._unread = []
        body = raw[head.size :]
        if head.chunked:
            self._walk = True
            self._unread = [body]
            return self._walk_chunks()
        self._remaining = head.length
        if self._remaining is None:
            return False
        self._remaining -= len(body)
        self.excess = self._remaining < 0
        return self._remaining <= 0

    def _walk_chunks(self) -> bool:
        data = b"".join(self._unread)
        position = self._skip
        while position < len(data):
            found = chunk_at(data, position)
            if found is None:
                break
            begin, size = found
            if size == 0:
                self.excess = begin < len(data)
                return True
            position = begin + size + 2
        self._skip = max(0, position - len(data))
        self._unread = [data[position:]] if position < len(data) else []
        return False


def chunk_at(data: bytes, position: int) -> tuple[int, int] | None:
    """Where the data of the chunk at `position` begins, and its size; None while that is not known.

    For the last chunk, of size 0, it is where the whole message ends, after its trailers.
    """
    end = data.find(b"\r\n", position, position + _SIZE_LINE_LIMIT)
    if end < 0:
        if len(data) - position >= _SIZE_LINE_LIMIT:
            raise WireError("a chunk has no size")
        return None
    text = data[position:end].partition(b";")[0].strip()
    if not text or not all(c in b"0123456789abcdefABCDEF" for c in text) or len(text) > 12:
        raise WireError(f"a chunk has the size {text[:20]!r}")
    size = int(text, 16)
    if size:
        return end + 2, size
    last = data.find(_END_OF_HEAD, end)
    return None if last < 0 else (last + 4, 0)


def read_answer(pieces: Sequence[bytes], times_ns: Sequence[int]) -> Answer:
    """Take a recorded answer apart: `pieces[i]` arrived at `times_ns[i]`. Raises WireError."""
    raw = b"".join(pieces)
    head = parse_head(raw)
    if head is None:
        raise WireError("the connection ended within the header" if raw else "nothing came back")
    ends: list[int] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        ends.append(total)
    if head.chunked:
        return _read_chunked(head, raw, ends, times_ns)
    length = head.length
    body = raw[head.size :] if length is None else raw[head.size : head.size + length]
    return Answer(
        head=head,
        body=body,
        complete=length is None or len(body) == length,
        ends=[max(0, end - head.size) for end in ends],
        times_ns=times_ns,
    )


def _read_chunked(head: Head, raw: bytes, raw_ends: list[int], raw_times: Sequence[int]) -> Answer:
    """Undo the chunks. Every stretch of the body keeps the time at which its last byte arrived."""
    parts: list[bytes] = []
    ends: list[int] = []
    times: list[int] = []
    position, size_so_far, piece, complete = head.size, 0, 0, False
    while position < len(raw):
        found = chunk_at(raw, position)
        if found is None:
            break
        begin, size = found
        if size == 0:
            complete = True
            break
        part = raw[begin : begin + size]
        parts.append(part)
        while raw_ends[piece] <= begin and piece < len(raw_ends) - 1:
            piece += 1
        while part and raw_ends[piece] < begin + len(part):
            ends.append(size_so_far + raw_ends[piece] - begin)
            times.append(raw_times[piece])
            piece += 1
        size_so_far += len(part)
        ends.append(size_so_far)
        times.append(raw_times[piece])
        if len(part) == size and raw[begin + size : begin + size + 2] not in (b"\r\n", b"\r", b""):
            raise WireError("a chunk is longer than its size")
        position = begin + size + 2
    if not times:
        ends, times = [0], [raw_times[-1]]
    return Answer(head=head, body=b"".join(parts), complete=complete, ends=ends, times_ns=times)

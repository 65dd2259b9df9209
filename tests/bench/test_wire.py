"""Where an answer ends, and what was in it, however its bytes were cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench.wire import Framer, WireError, parse_head, read_answer

BODY = b"".join(b"data: %d\r\n\r\n" % i for i in (10, 20, 0)) + "tökén".encode()


def chunked(body: bytes, sizes: list[int], *, trailer: bytes = b"", extension: bytes = b"") -> bytes:
    out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    begin = 0
    for size in [*sizes, len(body)]:
        part = body[begin : begin + size]
        begin += size
        if part:
            out += b"%x%b\r\n%b\r\n" % (len(part), extension, part)
    return out + b"0\r\n" + trailer + b"\r\n"


def lengthy(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def feed(framer: Framer, piece: bytes) -> bool:
    framer.pieces.append(piece)
    return framer.advance()


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(place % len(raw) for place in places)})
    return [raw[a:b] for a, b in pairwise(edges)]


wires = st.one_of(
    st.builds(
        chunked,
        st.sampled_from([BODY, b"", b"0\r\n\r\n" * 4, b"\r\n\r\n"]),
        st.lists(st.integers(1, 20), max_size=8),
        trailer=st.sampled_from([b"", b"X-Trailer: 1\r\n"]),
        extension=st.sampled_from([b"", b";name=value"]),
    ),
    st.builds(lengthy, st.sampled_from([BODY, b""])),
)
places = st.lists(st.integers(0, 10_000), max_size=30)


@given(wires, places)
def test_the_framer_finds_the_end_at_the_last_piece_and_not_before(raw: bytes, where: list[int]) -> None:
    pieces = cut(raw, where)
    framer = Framer([])
    assert [feed(framer, piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert framer.reusable


@given(wires, places)
def test_the_body_does_not_depend_on_how_it_was_cut(raw: bytes, where: list[int]) -> None:
    pieces = cut(raw, where)
    whole = read_answer([raw], [0])
    found = read_answer(pieces, list(range(len(pieces))))
    assert (found.body, found.complete) == (whole.body, True)


@given(st.lists(st.integers(1, 20), max_size=8), places)
def test_a_byte_of_the_body_has_the_time_of_the_piece_it_came_in(sizes: list[int], where: list[int]) -> None:
    raw = chunked(BODY, sizes)
    pieces = cut(raw, where)
    found = read_answer(pieces, range(len(pieces)))
    assert found.ends == sorted(found.ends)
    for offset, place in enumerate(places_in_raw(BODY, sizes), 1):
        assert found.arrived_ns(offset) == piece_of(pieces, place)


def places_in_raw(body: bytes, sizes: list[int]) -> list[int]:
    """Where each byte of the body is in `chunked(body, sizes)`."""
    found: list[int] = []
    raw_at = chunked(b"", []).index(b"\r\n\r\n") + 4
    while len(found) < len(body):
        size = min(len(body) - len(found), sizes[0] if sizes else len(body))
        sizes = sizes[1:]
        raw_at += len(b"%x\r\n" % size)
        found += range(raw_at, raw_at + size)
        raw_at += size + 2
    return found


def piece_of(pieces: list[bytes], place: int) -> int:
    total = 0
    for number, piece in enumerate(pieces):
        total += len(piece)
        if place < total:
            return number
    raise AssertionError(place)


@pytest.mark.parametrize("drop", [1, 2, 5, 7, 30])
def test_an_answer_that_was_cut_off_is_not_complete(drop: int) -> None:
    raw = chunked(BODY, [5, 5])[:-drop]
    framer = Framer([])
    assert feed(framer, raw) is False
    assert read_answer([raw], [0]).complete is False


def test_without_a_length_the_answer_ends_with_the_connection() -> None:
    raw = b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nhello"
    framer = Framer([])
    assert feed(framer, raw) is False
    assert framer.ends_with_connection
    assert not framer.reusable
    assert read_answer([raw], [0]).body == b"hello"


def test_a_connection_that_says_close_or_sends_too_much_is_not_used_again() -> None:
    closing = Framer([])
    assert feed(closing, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    more = Framer([])
    assert feed(more, lengthy(b"abc") + b"HTTP/1.1 200")
    assert not closing.reusable
    assert not more.reusable


def test_interim_answers_are_passed_over() -> None:
    head = parse_head(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\n\r\n")
    assert head is not None
    assert (head.status, head.length, head.headers["a"]) == (204, 0, "b")


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
)
def test_what_is_not_http_is_an_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        feed(Framer([]), raw)


@given(st.binary(max_size=200), places)
def test_hostile_bytes_raise_nothing_else(raw: bytes, where: list[int]) -> None:
    pieces = cut(raw, where) if raw else []
    for prefix in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        framer = Framer([])
        try:
            for piece in [prefix, *pieces] if prefix else pieces:
                if feed(framer, piece):
                    break
            read_answer([prefix, *pieces], [0] * (len(pieces) + 1))
        except WireError:
            pass

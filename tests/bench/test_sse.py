"""Server-sent events, by the standard's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.bench.sse import events

ENDS = ("\n", "\r\n", "\r")


def data(body: bytes) -> list[bytes]:
    return [found for found, _ in events(body)]


@pytest.mark.parametrize("end", ENDS)
def test_line_ends_comments_and_other_fields(end: str) -> None:
    lines = [": ping", "", "data: one", "", "event: x", "id: 3", "data:two", "data:  three", "", "data", ""]
    body = end.join([*lines, "data: [DONE]", "", ""]).encode()
    assert data(body) == [b"one", b"two\n three", b"", b"[DONE]"]


def test_offsets_are_where_the_empty_line_ends() -> None:
    assert list(events(b"data: a\n\ndata: bc\r\n\r\n")) == [(b"a", 9), (b"bc", 21)]


def test_the_last_event_may_lack_its_empty_line() -> None:
    assert data(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert data(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_huge_lines_are_read() -> None:
    assert data(b"data: " + b"x" * 5_000_000 + b"\n\n") == [b"x" * 5_000_000]


texts = st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8")), max_size=6)


@given(texts, st.sampled_from(ENDS), st.booleans())
def test_what_was_written_is_read(written: list[str], end: str, comments: bool) -> None:
    comment = f": note{end}{end}" if comments else ""
    body = "".join(f"{comment}data: {text}{end}{end}" for text in written).encode()
    assert data(body) == [text.encode() for text in written]


@given(st.binary(max_size=300))
def test_hostile_bytes_raise_nothing(body: bytes) -> None:
    for _, end in events(body):
        assert 0 < end <= len(body)

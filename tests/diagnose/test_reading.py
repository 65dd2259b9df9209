"""Whatever a log is stored as, its lines arrive as UTF-8 without escape codes; what is no log is refused."""

import gzip
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.diagnose import reading

TEXT = "INFO start\nFailed to initialize NVML: Unknown Error\nend ü\n"


def read(data: bytes, *, size: int = 1 << 20) -> bytes:
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    return b"".join(block for block, _ in reading.blocks(chunks, name="x.log"))


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        gzip.compress(TEXT.encode()),
        gzip.compress(TEXT[:20].encode()) + gzip.compress(TEXT[20:].encode()),
        gzip.compress(TEXT.encode("utf-16")),
    ],
    ids=["utf8", "utf16", "utf16le", "utf16be", "gzip", "gzip in two parts", "utf16 in gzip"],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_every_way_to_store_a_log(data: bytes, size: int) -> None:
    assert read(data, size=size).decode() == TEXT


def test_escape_codes_are_taken_off() -> None:
    coloured = b"\x1b[1;31mERROR\x1b[0m a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\xc2\x9b31md\n"
    assert read(coloured) == b"ERROR abcd\n"


def test_an_escape_code_that_never_ends_costs_little_and_keeps_the_line() -> None:
    assert b"Unknown Error" in read(b"\x1b]" + b"x" * 100_000 + b" Unknown Error\n")


def test_a_damaged_end_of_a_compressed_log_gives_what_is_there() -> None:
    lines = "".join(f"line {n} {n * 7919}\n" for n in range(5000)).encode()
    packed = gzip.compress(lines)
    assert read(packed[: len(packed) // 2]).startswith(b"line 0 0\nline 1 7919\n")
    assert read(packed[:-200] + b"garbage" * 30).startswith(b"line 0 0\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 8, "a program (ELF)"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\xfd7zXZ\x00\x00", "an xz archive"),
        (bytes(range(1, 32)) * 100, "binary data"),
    ],
)
def test_what_is_no_text_is_refused_in_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(data)
    assert "`x.log` is not a log" in caught.value.message
    assert words in caught.value.cause[0]


def test_a_rotated_log_may_begin_with_zero_bytes() -> None:
    assert read(b"\0" * 100_000 + b"ERROR here\n").endswith(b"ERROR here\n")


def test_broken_characters_are_no_reason_to_stop() -> None:
    assert b"Unknown Error" in read("Грешка ".encode("cp1251") * 20 + b"\xff\xfe\xc0 Unknown Error\n")


def test_a_line_without_an_end_is_cut_with_an_overlap_and_bounded_memory() -> None:
    sizes: list[int] = []

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b"a" * 200_000

    for block, whole in reading.blocks(endless(), name="x"):
        sizes.append(len(block))
        assert not whole or block == b"a" * len(block)
    assert len(sizes) > 3
    assert max(sizes) <= reading.LONGEST_LINE + 400_000


def test_an_empty_log_is_empty() -> None:
    assert read(b"") == b""


@given(st.binary(max_size=2000), st.integers(1, 500))
def test_any_bytes_have_one_clear_outcome(data: bytes, size: int) -> None:
    with suppress(UsageError):
        read(data, size=size)

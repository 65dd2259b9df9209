"""Any log as blocks of whole lines in UTF-8: encodings, compression and escape codes are taken off here.

Memory is bounded: one block, and at most one line that is cut when it is longer than that.
"""

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from model_optimizer.core import UsageError

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20
"""A longer line is cut here, and its parts keep its number."""

OVERLAP = 1 << 10
"""Bytes of a cut line that are read again, so that no message is lost at the cut."""

SNIFFED = 1 << 16

_COLOURS = re.compile(rb"\x1b\[[\d;]{0,32}m")
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])"
    rb"|\xc2\x9b[0-?]{0,64}[@-~]"
)
_CONTROL = bytes(c for c in range(32) if c not in b"\0\t\n\r\x1b\x08\x0c")
_MAGIC = {
    b"\x7fELF": "a program (ELF)",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"PK\x03\x04": "a zip archive",
    b"%PDF": "a PDF",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"(\xb5/\xfd": "a zstd archive",
    b"MZ": "a program (Windows)",
}


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    """What a stream gives, as soon as it gives it."""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(BLOCK):
        yield chunk


def blocks(chunks: Iterable[bytes], *, name: str) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file or stream, in whatever way they are stored; see `lines`.

    Raises UsageError when the input is not text. `name` is what the error calls it.
    """
    return lines(_as_utf8(_unpacked(iter(chunks)), name))


def lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """(text, whole): whole lines without escape codes. `whole` is False when the last line was cut."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield _plain(rest[:cut]), True
            rest = rest[cut:]
        elif len(rest) > LONGEST_LINE:
            yield _plain(rest), False
            rest = rest[-OVERLAP:]
    if rest:
        yield _plain(rest), True


def _plain(block: bytes) -> bytes:
    if b"\x1b" in block:
        block = _COLOURS.sub(b"", block)
    return _ESCAPES.sub(b"", block) if b"\x1b" in block or b"\xc2\x9b" in block else block


def _first(chunks: Iterator[bytes], least: int) -> bytes:
    """The start of the input, at least so many bytes of it when it has them."""
    found = b""
    while len(found) < least and (chunk := next(chunks, b"")):
        found += chunk
    return found


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = _first(chunks, 2)
    if first[:2] != b"\x1f\x8b":
        yield first
        yield from chunks
        return
    yield from _gunzip(_chain(first, chunks))


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What was compressed, also in several members; a damaged end gives what could be read."""
    unpack = zlib.decompressobj(31)
    for chunk in chunks:
        while chunk:
            if unpack.eof:
                unpack = zlib.decompressobj(31)
            try:
                text = unpack.decompress(chunk, BLOCK)
            except zlib.error:
                return
            chunk = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
            if text:
                yield text


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _as_utf8(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    # A pipe gives a little at a time: only what came first is looked at, so that its end isn't waited for.
    first = _first(chunks, 4)
    encoding = _utf16(first[:SNIFFED])
    if encoding is None:
        _refuse_binary(first[:SNIFFED], name)
        yield first
        yield from chunks
        return
    decode = codecs.getincrementaldecoder(encoding)(errors="replace").decode
    for chunk in _chain(first, chunks):
        yield decode(chunk).encode("utf-8", "replace")
    yield decode(b"", True).encode("utf-8", "replace")


def _utf16(sample: bytes) -> str | None:
    """The kind of UTF-16 when it is one: by its mark, or by where the zero bytes are."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = max(1, len(sample) // 2)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _refuse_binary(sample: bytes, name: str) -> None:
    """Logs may hold zero bytes (a rotated file does) and broken characters, but few control characters."""
    kind = next((words for magic, words in _MAGIC.items() if sample.startswith(magic)), None)
    text = sample.replace(b"\0", b"")
    control = len(text) - len(text.translate(None, _CONTROL))
    if kind is None and control <= 0.05 * len(text):
        return
    hint = (
        "unpack it first" if kind and kind.endswith("archive") else "name the file that the program logged to"
    )
    raise UsageError(
        f"`{name}` is not a log",
        cause=(f"it is {kind}" if kind else "it holds binary data, not text",),
        hint=(hint,),
    )

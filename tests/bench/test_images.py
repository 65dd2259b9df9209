"""Images for requests: of the size that was asked for, each of its own, and cheap to make."""

import base64
import struct
import zlib
from pathlib import Path

import pytest

from model_optimizer.bench.images import data_url, png, size_of
from model_optimizer.core import UsageError


def decoded(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and rows of a PNG, every checksum checked."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place, packed, head = 8, b"", b""
    while place < len(data):
        (size,) = struct.unpack_from(">I", data, place)
        name, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        (crc,) = struct.unpack_from(">I", data, place + 8 + size)
        assert crc == zlib.crc32(name + content)
        packed += content if name == b"IDAT" else b""
        head = content if name == b"IHDR" else head
        place += 12 + size
    width, height = struct.unpack_from(">II", head)
    return width, height, zlib.decompress(packed)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 9), (17, 1), (64, 48), (333, 100)])
def test_a_png_of_every_size(width: int, height: int) -> None:
    found_width, found_height, rows = decoded(png(width, height, "a"))
    assert (found_width, found_height, len(rows)) == (width, height, height * (1 + 3 * width))
    assert {rows[y * (1 + 3 * width)] for y in range(height)} == {0}


def test_every_image_is_another_one_in_its_pixels() -> None:
    rows = [decoded(png(64, 48, str(seed)))[2] for seed in range(20)]
    assert len(set(rows)) == 20
    assert len({row[193:] for row in rows}) == 1  # the part that is compressed once
    assert png(64, 48, "x") == png(64, 48, "x")


def test_sizes() -> None:
    assert size_of("1024x768") == (1024, 768)
    assert size_of("cat.png") is None
    for wrong in ("0x5", "5x0", "99999x5"):
        with pytest.raises(UsageError):
            size_of(wrong)


def test_a_file_is_encoded_once_for_its_content(tmp_path: Path) -> None:
    content = png(8, 8, "a")
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(content)
    first, second = (data_url(str(tmp_path / name), "") for name in ("a.png", "b.png"))
    assert first is second
    assert base64.b64decode(first.removeprefix("data:image/png;base64,")) == content


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    for name in ("a.txt", "nowhere"):
        with pytest.raises(UsageError):
            data_url(str(tmp_path / name), "")

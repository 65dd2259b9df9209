"""Images of a wanted size for requests, as data URLs.

The body of an image is compressed once for each size; only its first row is new in every request. So making
one costs about a millisecond, and a server that keeps images by their content gains nothing from the last.
"""

import base64
import hashlib
import re
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from random import Random

from model_optimizer.core import UsageError

_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
_BLOCK = 8  # pixels: what is drawn compresses about as well as a photograph
_LARGEST = 16_384
_FILE_LIMIT = 64 << 20
_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def size_of(text: str) -> tuple[int, int] | None:
    """Width and height of `1024x768`; None when it is not written so. Raises UsageError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    width, height = int(found[1]), int(found[2])
    if not (0 < width <= _LARGEST and 0 < height <= _LARGEST):
        raise UsageError(f"an image of {text} pixels", hint=(f"sides are 1 to {_LARGEST} pixels",))
    return width, height


def data_url(image: str, seed: str) -> str:
    """`image` is a size, or a file that every request carries. Raises UsageError."""
    size = size_of(image)
    if size is None:
        return _from_file(image)
    return "data:image/png;base64," + base64.b64encode(png(*size, seed)).decode()


def png(width: int, height: int, seed: str) -> bytes:
    """A PNG of 8-bit RGB, whose first row depends on `seed`."""
    first = b"\0" + Random(seed).randbytes(min(width * 3, 48)).ljust(width * 3, b"\x80")
    packer = zlib.compressobj(1, wbits=-15)
    packed = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
    rest, rest_packed = _rest(width, height)
    check = zlib.adler32(rest, zlib.adler32(first)).to_bytes(4, "big")
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", head),
            _chunk(b"IDAT", b"\x78\x01" + packed),
            rest_packed,
            _chunk(b"IDAT", check),
            _chunk(b"IEND", b""),
        )
    )


@lru_cache(maxsize=8)
def _rest(width: int, height: int) -> tuple[bytes, bytes]:
    """All rows but the first: as they are, and as a chunk of compressed data."""
    dice = Random(f"{width}x{height}")
    rows: list[bytes] = []
    row = b""
    for y in range(1, height):
        if y % _BLOCK == 1 or not row:
            blocks = (dice.randbytes(3) * _BLOCK for _ in range(-(-width // _BLOCK)))
            row = b"\0" + b"".join(blocks)[: width * 3]
        rows.append(row)
    rest = b"".join(rows)
    packer = zlib.compressobj(6, wbits=-15)
    return rest, _chunk(b"IDAT", packer.compress(rest) + packer.flush())


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


_BY_DIGEST: dict[str, str] = {}
_DIGESTS: dict[str, str] = {}


def _from_file(name: str) -> str:
    """A file is read and encoded once; files of the same content share what was encoded."""
    if name not in _DIGESTS:
        path = Path(name)
        try:
            if path.stat().st_size > _FILE_LIMIT:
                raise UsageError(f"`{name}` is larger than 64 MiB")
            content = path.read_bytes()
        except OSError as error:
            hint = ("write WIDTHxHEIGHT, or name a file",)
            raise UsageError(f"no image `{name}`", cause=(error.strerror or "",), hint=hint) from error
        kind = next((kind for start, kind in _KINDS.items() if content.startswith(start)), None)
        if kind is None:
            raise UsageError(f"`{name}` is not a PNG, JPEG, GIF or WebP image")
        _DIGESTS[name] = digest = hashlib.sha256(content).hexdigest()
        if digest not in _BY_DIGEST:
            _BY_DIGEST[digest] = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return _BY_DIGEST[_DIGESTS[name]]

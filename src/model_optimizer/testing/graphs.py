"""Small ONNX files for tests, without the package: one product, with a weight of zeros."""

FLOAT, HALF, INT8 = 1, 10, 3
BYTES = {FLOAT: 4, HALF: 2, INT8: 1}


def graph(
    *,
    weight: int = FLOAT,
    opset: int = 20,
    operators: tuple[str, ...] = ("MatMul",),
    bits: int | None = None,
    rows: int | None = None,
) -> bytes:
    """`y = x w` with x of `rows` x 8 and w of 8 x 8; more operators read what the last one made.

    An operator may be `domain::Kind`. `bits` is an attribute of all; without `rows` that size is free.
    """
    nodes = [
        _part(1, b"x" if n == 0 else b"v%d" % (n - 1), b"w") + _part(2, b"v%d" % n) + _kind(named, bits)
        for n, named in enumerate(operators)
    ]
    tensor = (
        b"\x08\x08\x08\x08" + b"\x10" + _number(weight) + _part(8, b"w") + _part(9, bytes(64 * BYTES[weight]))
    )
    first = _part(2, b"rows") if rows is None else b"\x08" + _number(rows % 2**64)
    sizes = _part(2, _part(1, first) + _part(1, b"\x08\x08"))
    value = _part(2, _part(1, b"\x08\x01" + sizes))
    body = b"".join(_part(1, node) for node in nodes) + _part(5, tensor)
    body += _part(11, _part(1, b"x") + value) + _part(12, _part(1, b"v%d" % (len(nodes) - 1)) + value)
    return b"\x08\x0a" + _part(7, body) + _part(8, b"\x10" + _number(opset))


def _kind(named: str, bits: int | None) -> bytes:
    domain, _, kind = named.rpartition("::")
    attribute = _part(5, _part(1, b"bits") + b"\x18" + _number(bits)) if bits else b""
    return _part(4, kind.encode()) + attribute + (_part(7, domain.encode()) if domain else b"")


def _part(number: int, *contents: bytes) -> bytes:
    return b"".join(bytes([number << 3 | 2]) + _number(len(text)) + text for text in contents)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

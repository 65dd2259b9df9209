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
    sizes: tuple[int, ...] = (8, 8),
    beside: str | None = None,
    offset: str = "0",
    inner: int = 0,
) -> bytes:
    """`y = x w` with x of `rows` x 8 and w of 8 x 8; more operators read what the last one made.

    An operator may be `domain::Kind`. `bits` is an attribute of all; without `rows` that size is free.
    `sizes` is what the weight says of itself; with `beside` it lies in that file, from `offset` on. `inner`
    puts the weight into so many graphs inside of each other.
    """
    nodes = [
        _part(1, b"x" if n == 0 else b"v%d" % (n - 1), b"w") + _part(2, b"v%d" % n) + _kind(named, bits)
        for n, named in enumerate(operators)
    ]
    where = {"location": beside or "", "offset": offset, "length": str(64 * BYTES[weight])}
    pairs = (_part(13, _part(1, key.encode()) + _part(2, text.encode())) for key, text in where.items())
    numbers = b"".join(pairs) + b"\x70\x01" if beside is not None else _part(9, bytes(64 * BYTES[weight]))
    shape = b"".join(b"\x08" + _number(size) for size in sizes)
    tensor = shape + b"\x10" + _number(weight) + _part(8, b"w") + numbers
    first = _part(2, b"rows") if rows is None else b"\x08" + _number(rows % 2**64)
    axes = _part(2, _part(1, first) + _part(1, b"\x08\x08"))
    value = _part(2, _part(1, b"\x08\x01" + axes))
    held = _part(5, tensor)
    for _ in range(inner):
        held = _part(1, _part(4, b"If") + _part(5, _part(1, b"then_branch") + _part(6, held)))
    body = b"".join(_part(1, node) for node in nodes) + held
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

"""What an ONNX file says of itself, read without the package and without its weights."""

from pathlib import Path

import pytest

from model_optimizer.core import UsageError
from model_optimizer.system import onnx_files, onnx_header
from model_optimizer.testing.graphs import FLOAT, HALF, INT8, graph


@pytest.mark.parametrize(
    ("weight", "operators", "scheme"),
    [
        (FLOAT, ("MatMul",), "fp32"),
        (HALF, ("MatMul",), "fp16"),
        (INT8, ("DequantizeLinear", "MatMul"), "int8"),
        (INT8, ("Gather",), "fp32"),
        (INT8, ("DynamicQuantizeLinear", "MatMulInteger"), "int8"),
    ],
)
def test_the_numbers_of_the_weights_are_its_scheme(
    tmp_path: Path, weight: int, operators: tuple[str, ...], scheme: str
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(weight=weight, operators=operators))
    found = onnx_header.read(path)
    assert (found.scheme, found.parameters, found.opset) == (scheme, 64, 20)
    assert found.inputs == {"x": ("rows", 8)}
    assert found.outputs == (f"v{len(operators) - 1}",)
    assert found.operators == set(operators)


@pytest.mark.parametrize(
    ("bits", "scheme"), [(None, "int4_rtn"), (4, "int4_rtn"), (8, "int8_weight"), (2, "int2 in blocks")]
)
def test_weights_in_blocks_are_packed_in_bytes_and_named_by_their_bits(
    tmp_path: Path, bits: int | None, scheme: str
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(weight=INT8, operators=("com.microsoft::MatMulNBits",), bits=bits))
    assert onnx_header.read(path).scheme == scheme


def test_fused_products_of_whole_numbers_are_quantized(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(weight=INT8, operators=("com.microsoft::DynamicQuantizeMatMul",)))
    assert onnx_header.read(path).scheme == "int8"


def test_a_size_of_minus_one_is_free(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(rows=-1))
    assert onnx_header.read(path).inputs == {"x": ("x_0", 8)}
    path.write_bytes(graph(rows=3))
    assert onnx_header.read(path).inputs == {"x": (3, 8)}


@pytest.mark.parametrize("weight", [FLOAT, HALF])
def test_a_file_that_is_cut_off_anywhere_is_one_error(tmp_path: Path, weight: int) -> None:
    whole = graph(weight=weight)
    path = tmp_path / "net.onnx"
    for end in range(len(whole) - 5):
        path.write_bytes(whole[:end])
        with pytest.raises(UsageError) as caught:
            onnx_header.read(path)
        assert caught.value.reference == "broken-artifact"


@pytest.mark.parametrize("begin", [b"PK\x03\x04", b"\x80\x04", b"\x80\x02"])
def test_a_pickle_is_named(tmp_path: Path, begin: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(begin + b"anything")
    with pytest.raises(UsageError) as caught:
        onnx_header.read(path)
    assert caught.value.reference == "pickle"


@pytest.mark.parametrize("content", [b"no graph at all", b"\xff" * 64, b"\x3a\x00", b"\x00" * 40])
def test_other_bytes_are_no_graph(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no ONNX file"):
        onnx_header.read(path)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ((2**62,), "more numbers than fit into its"),
        ((2**63 - 1,) * 64, "more numbers than fit into its"),
        ((2**64 - 1, 8), "more numbers than fit into its"),
        ((1,) * 65, "more than 64 dimensions"),
    ],
)
@pytest.mark.parametrize("beside", [None, "net.onnx.data"])
def test_sizes_that_cannot_be_are_refused(
    tmp_path: Path, sizes: tuple[int, ...], says: str, beside: str | None
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(sizes=sizes, beside=beside))
    with pytest.raises(UsageError) as caught:
        onnx_header.read(path)
    assert says in caught.value.cause[0] and len(caught.value.cause[0]) < 200


def test_an_input_of_many_dimensions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    many = b"\x0a\x02\x08\x03" * 200_000
    value = b"\x0a\x01z\x12" + _sized(b"\x0a" + _sized(b"\x12" + _sized(many)))
    path.write_bytes(b"\x3a" + _sized(b"\x0a\x08\x22\x06MatMul" + b"\x5a" + _sized(value)))
    with pytest.raises(UsageError) as caught:
        onnx_header.read(path)
    assert "`z` has more than 64 dimensions" in caught.value.cause[0]


@pytest.mark.parametrize("inner", [0, 1, 8])
def test_weights_in_branches_are_counted_with_their_files(tmp_path: Path, inner: int) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(inner=inner, beside="net.onnx.data", offset="100"))
    found = onnx_header.read(path)
    assert (found.parameters, dict(found.data)) == (64, {"net.onnx.data": 356})


def test_graphs_without_end_inside_of_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(inner=9))
    with pytest.raises(UsageError) as caught:
        onnx_header.read(path)
    assert "graphs inside of graphs" in caught.value.cause[0]


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30, "", "\u0663"])
def test_places_of_weights_that_are_no_numbers_are_refused(tmp_path: Path, offset: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(beside="net.onnx.data", offset=offset))
    with pytest.raises(UsageError) as caught:
        onnx_header.read(path)
    assert caught.value.reference == "broken-artifact"
    assert "nothing says where `w` lies" in caught.value.cause[0]


@pytest.mark.parametrize("where", ["../out.bin", "/etc/passwd", "", "a/../../out.bin", "a\0b", "way/out.bin"])
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, where: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "out.bin").write_bytes(bytes(256))
    (folder / "way").symlink_to(tmp_path)
    path = folder / "net.onnx"
    path.write_bytes(graph(beside=where))
    with pytest.raises(UsageError, match="points outside its folder") as caught:
        onnx_files.beside(path, onnx_header.read(path))
    assert caught.value.reference == "broken-artifact"


def test_weights_that_are_a_link_are_refused_with_the_way_to_copy_them(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(beside="net.bin"))
    (tmp_path / "blob").write_bytes(bytes(256))
    (tmp_path / "net.bin").symlink_to("blob")
    with pytest.raises(UsageError, match="are a link") as caught:
        onnx_files.beside(path, onnx_header.read(path))
    assert "cp -rL" in caught.value.hint[0]


@pytest.mark.parametrize(
    ("have", "says"), [(None, "it is missing"), (255, "255 bytes are there, 256 are needed")]
)
def test_weights_that_are_not_whole_are_named(tmp_path: Path, have: int | None, says: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(beside="net.bin"))
    if have is not None:
        (tmp_path / "net.bin").write_bytes(bytes(have))
    with pytest.raises(UsageError) as caught:
        onnx_files.content_digest(path, onnx_header.read(path))
    assert (caught.value.reference, caught.value.cause) == ("external-data-missing", (says,))


def _sized(content: bytes) -> bytes:
    size, found = len(content), bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size]) + content

"""What an ONNX file says of itself, read without the package and without its weights."""

from pathlib import Path

import pytest

from model_optimizer.core import UsageError
from model_optimizer.system import onnx_header
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

"""Headers of safetensors files, whole and broken."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.system import safetensors_header
from model_optimizer.testing.checkpoints import write_safetensors


def header_of(entries: dict[str, object]) -> bytes:
    return json.dumps(entries).encode()


def test_names_shapes_and_formats(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(
        path, {"a": ("BF16", (2, 3)), "b": ("F8_E4M3", (4,)), "one": ("F32", ()), "none": ("F16", (0, 5))}
    )
    found = safetensors_header.read(path)
    assert {name: (t.dtype, t.shape, t.bytes, t.elements) for name, t in found.items()} == {
        "a": ("BF16", (2, 3), 12, 6),
        "b": ("F8_E4M3", (4,), 4, 4),
        "one": ("F32", (), 4, 1),
        "none": ("F16", (0, 5), 0, 0),
    }


def test_weights_are_not_read(tmp_path: Path) -> None:
    """A sparse file of 40 GB is answered at once."""
    path = tmp_path / "large.safetensors"
    elements = 20 * 10**9
    text = header_of({"w": {"dtype": "F16", "shape": [elements], "data_offsets": [0, 2 * elements]}})
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + 2 * elements)
    assert safetensors_header.read(path)["w"].elements == elements


def test_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"w": ("F32", (100,))})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UsageError, match="not a whole safetensors file") as caught:
        safetensors_header.read(path)
    assert caught.value.cause == ("it is cut off: 40 of 400 bytes of weights are missing",)


def test_cut_off_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((500).to_bytes(8, "little") + b'{"w"')
    with pytest.raises(UsageError) as caught:
        safetensors_header.read(path)
    assert caught.value.cause == ("its header claims 500 bytes, and the file has 12",)


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_almost_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a whole"):
        safetensors_header.read(path)


def test_hostile_length_reserves_nothing(tmp_path: Path) -> None:
    """A header that claims 2^63 bytes, and one over the format's 100 MB in a file that is large enough."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(UsageError) as caught:
        safetensors_header.read(path)
    assert "the format allows 100 MB" in caught.value.cause[0]
    with path.open("wb") as stream:
        stream.write((150_000_000).to_bytes(8, "little"))
        stream.truncate(200_000_000)
    with pytest.raises(UsageError) as caught:
        safetensors_header.read(path)
    assert "the format allows 100 MB" in caught.value.cause[0]


@pytest.mark.parametrize(
    ("entries", "data", "why"),
    [
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4, "which its shape does not need"),
        ({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8, "negative size"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12, "does not begin where"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 20, "belong to no tensor"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            },
            8,
            "does not begin where",
        ),
        ({"w": {"dtype": "F32", "shape": "x", "data_offsets": [0, 8]}}, 8, "not valid"),
        ({"w": 3}, 0, "not valid"),
    ],
)  # fmt: skip
def test_headers_that_do_not_describe_their_file(entries: dict[str, object], data: int, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        safetensors_header.parse(header_of(entries), data, "f")
    assert why in caught.value.cause[0]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_a_clear_error(content: bytes) -> None:
    with suppress(UsageError):
        safetensors_header.parse(content, 0, "f")

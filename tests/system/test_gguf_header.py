"""GGUF headers: a file made here, and files that lie."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.system import gguf_header

KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.ggml.scores": [0.5, 0.25],
}
TENSORS = {
    "token_embd.weight": ((64, 32), 8),
    "blk.0.attn_q.weight": ((64, 64), 2),
    "blk.1.attn_q.weight": ((64, 64), 0),
    "output_norm.weight": ((64,), 0),
}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(one: Any) -> bytes:
    if isinstance(one, str):
        return struct.pack("<I", 8) + text(one)
    if isinstance(one, list):
        inner = 8 if isinstance(one[0], str) else 6 if isinstance(one[0], float) else 4
        items = b"".join(text(i) if inner == 8 else struct.pack("<f" if inner == 6 else "<I", i) for i in one)
        return struct.pack("<IIQ", 9, inner, len(one)) + items
    return struct.pack("<II", 4, one)


def made(
    keys: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None, *, version: int = 3
) -> bytes:
    keys, tensors = KEYS if keys is None else keys, TENSORS if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(text(name) + value(one) for name, one in keys.items())
    for name, (shape, kind) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, 0)
    return head + bytes(40_000)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def test_sizes_by_layer(tmp_path: Path) -> None:
    found = gguf_header.model(write(tmp_path, made()))
    assert found.name == "Tiny"
    assert found.layers == (64 * 64 // 32 * 18, 64 * 64 * 4)
    assert found.input_bytes == 64 * 32 // 32 * 34
    assert found.output_bytes == 64 * 4 + found.input_bytes
    assert found.kv_widths == (2 * (16 + 16),) * 2
    assert (found.vocab_size, found.max_position, found.hidden_size) == (3, 4096, 64)
    assert "4 tensors" in found.because
    spec = gguf_header.spec(found)
    assert (spec.name, spec.layers, spec.max_position) == ("Tiny", 2, 4096)


def test_a_head_of_its_own_is_not_counted_twice(tmp_path: Path) -> None:
    tensors = {**TENSORS, "output.weight": ((64, 32), 1)}
    found = gguf_header.model(write(tmp_path, made(tensors=tensors)))
    assert found.output_bytes == 64 * 4 + 64 * 32 * 2


def test_heads_may_differ_by_layer_and_have_sizes_of_their_own(tmp_path: Path) -> None:
    keys = {
        **KEYS,
        "llama.attention.head_count_kv": [2, 0],
        "llama.attention.key_length": 32,
        "llama.attention.value_length": 16,
    }
    assert gguf_header.model(write(tmp_path, made(keys))).kv_widths == (96, 0)


@pytest.mark.parametrize(
    ("content", "text_of"),
    [
        (b"", "does not begin"),
        (b"GGUF", "does not begin"),
        (b"PK\x03\x04" + bytes(100), "does not begin"),
        (made(version=1), "its version is 1"),
        (made()[:27], "ends within"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 1), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "a text claims"),
        (made(tensors={"x": ((64, 64), 77)}), "the type 77"),
        (made(tensors={"x": ((1 << 40, 1 << 20), 0)}), "does not fit"),
        (made({}), "which architecture"),
        (made({"general.architecture": "llama"}), "block_count"),
        (made({**KEYS, "llama.block_count": 1 << 30}), "claims 1073741824 layers"),
        (made({**KEYS, "llama.attention.head_count_kv": [1, 2, 3]}), "do not go with its layers"),
    ],
)
def test_files_that_lie(tmp_path: Path, content: bytes, text_of: str) -> None:
    with pytest.raises(UsageError, match="is not a whole GGUF file") as caught:
        gguf_header.model(write(tmp_path, content))
    assert text_of in " ".join(caught.value.cause)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        gguf_header.model(tmp_path / "none.gguf")


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 600), byte=st.integers(0, 255))
def test_a_changed_byte_never_surprises(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    content = bytearray(made())
    content[at] = byte
    path = write(tmp_path_factory.mktemp("gguf"), bytes(content))
    with suppress(UsageError):
        assert gguf_header.model(path).layers

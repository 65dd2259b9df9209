"""How many samples of what length, and which ones: settled by the workload, the gate and the memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import HostError, ModelSpec, UsageError, plugins
from model_optimizer.quantize import _calibration as room
from model_optimizer.quantize.run import Wanted

SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
MODEL = ModelSpec(
    name="m", architecture="Qwen3ForCausalLM", model_type="qwen3", task="generate", parameters=5_000_000,
    active_parameters=5_000_000, embedding_parameters=1_000_000, layers=6, hidden_size=256,
    intermediate_size=640, vocab_size=4096, heads=8, kv_heads=4, head_dim=32, attention="gqa", groups=(),
    max_position=2048,
)  # fmt: skip
ROOM = 16 << 30


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def settled(wanted: Wanted, scheme: str = "awq_int4", memory: int | None = ROOM) -> room.Calibration:
    return room.calibration(wanted, MODEL, SCHEMES[scheme], memory)


def test_the_less_a_scheme_may_lose_the_more_samples_it_gets() -> None:
    four, eight = settled(Wanted()), settled(Wanted(), "int8")
    assert room.FEWEST <= four.count < eight.count <= room.MOST
    assert "may be lost" in four.because


def test_lengths_follow_the_workload() -> None:
    assert settled(Wanted()).length == 2048
    found = settled(Wanted(workload_tokens=700))
    assert found.length == 700
    assert "workload" in found.because
    assert settled(Wanted(workload_tokens=9000)).length == MODEL.max_position


def test_what_is_asked_is_what_is_taken() -> None:
    found = settled(Wanted(count=8, length=128))
    assert (found.count, found.length) == (8, 128)
    assert found.because == "8 samples: as asked; 128 tokens: as asked"


def test_memory_is_the_ceiling() -> None:
    memory = 2 * 100 * room.sample_bytes(MODEL, 2048)
    found = settled(Wanted(), memory=memory)
    assert found.count == 100
    assert "would not fit" in found.because
    with pytest.raises(HostError) as caught:
        settled(Wanted(count=101), memory=memory)
    assert caught.value.reference == "out-of-memory"
    assert "--samples" in caught.value.hint[0]
    assert settled(Wanted(), memory=None).count > 100, "unknown memory is no ceiling"


def test_a_sample_is_no_longer_than_the_model_takes() -> None:
    with pytest.raises(UsageError, match="2048 positions"):
        settled(Wanted(length=4096))


def test_every_spelling_of_a_sample(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path = lines(
        tmp_path / "c.jsonl",
        {"text": "one"},
        {"messages": turns},
        {"prompt": "Hi", "completion": "Hello"},
        {"prompt": "Hi", "response": "Hello"},
        {"prompt": "two"},
        {"custom_id": "7", "body": {"messages": turns}},
    )
    chat = {"messages": turns}
    assert room.read(path) == ({"text": "one"}, chat, chat, chat, {"text": "two"}, chat)


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    """JSON may hold other separators as they are, which `splitlines` would cut at."""
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "one\u2028more\u0085still"}\n{"text": "two"}\n', encoding="utf-8")
    assert room.read(path) == ({"text": "one\u2028more\u0085still"}, {"text": "two"})


def test_parts_of_a_message_are_joined_where_all_are_text(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}]
    lines(path, {"messages": [{"role": "user", "content": parts}]})
    assert room.read(path) == ({"messages": [{"role": "user", "content": "Hi\nyou"}]},)
    for odd in ([], [*parts, {"type": "image_url"}], [*parts, "x"]):
        lines(path, {"messages": [{"role": "user", "content": odd}]})
        with pytest.raises(UsageError, match="line 1 of"):
            room.read(path)


def test_plain_text_has_blank_lines_between_samples(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("first\nstill first\r\n\r\nsecond\n\n\n")
    assert room.read(path) == ({"text": "first\nstill first"}, {"text": "second"})


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_file_is_one_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match="holds no calibration text") as caught:
        room.read(path)
    assert caught.value.reference == "calibration-data"


@pytest.mark.parametrize(
    "line", ['{"text": 3}', '{"messages": []}', '{"messages": [{"role": 1}]}', "[1]", '{"text": " "}', "{"]
)
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(UsageError, match="line 2 of"):
        room.read(path)


def test_a_file_that_is_gone_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        room.read(tmp_path / "nothing.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        room.read(tmp_path / "b.jsonl")


def test_a_file_shorter_than_asked_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "c.jsonl", {"text": "one"}, {"text": "two"})
    with pytest.raises(UsageError, match="holds 2 samples, 3 were asked for") as caught:
        settled(Wanted(path=path, count=3))
    assert "--samples 2" in caught.value.hint[0]
    found = settled(Wanted(path=path))
    assert found.count == 2
    assert found.source == str(path)
    assert found.because.startswith("all 2 samples of the file, 267 were wanted: ")


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_draw_is_the_same_each_time_and_keeps_the_order(there: int, wanted: int) -> None:
    samples = tuple({"text": str(n)} for n in range(there))
    one = room.sample(samples, wanted, asked=None, path=Path("c"))
    assert one == room.sample(samples, wanted, asked=None, path=Path("c"))
    assert len(one) == min(there, wanted)
    places = [int(s["text"]) for s in one]
    assert places == sorted(set(places))


def test_embedding_models_get_short_samples() -> None:
    model = replace(MODEL, task="embed", max_position=512)
    assert room.calibration(Wanted(), model, SCHEMES["int8"], ROOM).length == 512

"""Calibration samples as token ids: the same each time, in the model's chat format, none too long."""

from typing import Any

import _quantize_data as room
import pytest
from _contract import Failure


class Words:
    """A tokenizer that takes each word for a token and writes chats as `<role> content`."""

    def __init__(self, chat_template: str | None = "yes") -> None:
        self.chat_template = chat_template

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in text.split()]}

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool) -> list[int]:
        assert tokenize
        if messages[0]["role"] == "tool":
            raise ValueError("Conversation roles must alternate")
        return self(" ".join(f"<{m['role']}> {m['content']}" for m in messages))["input_ids"]


def read(samples: list[dict[str, Any]] | None, task: str = "generate", **asked: Any) -> room.Calibration:
    return room.read_calibration(Words(), {"count": 4, "length": 16, "samples": samples, **asked}, task)


def test_built_in_samples_are_the_same_each_time_and_as_long_as_asked() -> None:
    one, two = read(None, length=64), read(None, length=64)
    assert one == two
    assert [len(sample) for sample in one.ids] == [64] * 4
    assert len(set(one.ids)) == 4
    assert "weaker" in one.notes[1]


def test_more_of_them_begin_with_the_same_ones() -> None:
    assert read(None, count=8).ids[:4] == read(None).ids


def test_they_have_the_shape_of_the_task() -> None:
    assert all("messages" in sample for sample in room.builtin(2, 50, chat=True))
    assert all("text" in sample for sample in room.builtin(2, 50, chat=False))
    chat = room.builtin(1, 50, chat=True)[0]["messages"]
    assert [turn["role"] for turn in chat[:2]] == ["user", "assistant"]


def test_a_chat_is_written_by_the_models_template() -> None:
    turns = [{"role": "user", "content": "a bb"}, {"role": "assistant", "content": "ccc"}]
    assert read([{"messages": turns}]).ids == ((6, 1, 2, 11, 3),)
    plain = room.encode(Words(chat_template=None), {"messages": turns})
    assert plain == [1, 2, 3]


def test_long_samples_are_cut_and_empty_ones_left_out() -> None:
    found = read([{"text": "a " * 50}, {"text": "b"}, {"text": "c d"}])
    assert [len(sample) for sample in found.ids] == [16, 2]
    assert found.notes == ("calibration: 2 samples of 2 to 16 tokens, 18 in all",)
    assert found.tokens == 18


def test_nothing_to_calibrate_with() -> None:
    with pytest.raises(Failure) as caught:
        read([{"text": "word"}])
    assert caught.value.reference == "calibration-data"


def test_a_template_that_refuses_a_chat() -> None:
    with pytest.raises(Failure) as caught:
        read([{"messages": [{"role": "tool", "content": "x"}]}])
    assert caught.value.reference == "calibration-data"
    assert "alternate" in caught.value.cause[0]

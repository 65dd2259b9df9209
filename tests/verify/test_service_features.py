"""What the interface promises: JSON by a schema, calls of tools, thoughts apart, whole and in streams."""

from typing import Any

import pytest

from model_optimizer.flow.verify_service_ask import Asker, joined
from model_optimizer.flow.verify_service_features import features
from model_optimizer.verify.service_seen import Feature

from .odd_server import OddServer, Turn

Message = tuple[dict[str, Any], str]
NAMES = ("JSON schema", "tool calls", "chosen tool calls", "reasoning")


def found(server: OddServer, count: int = 4) -> dict[str, Feature]:
    with server:
        return {f.name: f for f in features(Asker(server.url, None), count)}


def streamed(turn: Turn) -> bool:
    return bool(turn.body.get("stream"))


class Thinking(OddServer):
    """Right: thoughts in their part, calls where there is a tool."""

    def message(self, turn: Turn) -> Message:
        message, why = super().message(turn)
        return {**message, "reasoning": "I am asked."}, why


def test_a_server_that_keeps_all() -> None:
    seen = found(Thinking())
    assert {name: (f.asked, f.wrong, f.missing) for name, f in seen.items()} == dict.fromkeys(
        NAMES, (4, (), None)
    )


class Whole(Thinking):
    """Of one fault, in whole answers, in streams or in both."""

    def __init__(self, change: str, where: tuple[bool, ...]) -> None:
        super().__init__()
        self.change, self.where = change, where

    def message(self, turn: Turn) -> Message:
        message, why = super().message(turn)
        if streamed(turn) not in self.where:
            return message, why
        if self.change == "thoughts":
            content = f"<think>{message['reasoning']}</think>{message.get('content') or ''}"
            return {**message, "content": content, "reasoning": None}, why
        if self.change == "marks":
            return {**message, "reasoning": "<think>I am asked."}, why
        if self.change == "lost":
            return {**message, "reasoning": None}, why
        if self.change == "both" and message.get("tool_calls"):
            return {**message, "content": "<tool_call>{}</tool_call>"}, why
        if self.change == "call left" and turn.body.get("tool_choice") == "auto":
            return {"role": "assistant", "content": '<tool_call>{"name": "report"}</tool_call>'}, "stop"
        if self.change == "broken" and message.get("tool_calls"):
            call = {"function": {"name": "report", "arguments": '{"ok": true'}}
            return {**message, "tool_calls": [call]}, why
        if self.change == "other tool" and message.get("tool_calls"):
            return {**message, "tool_calls": [{"function": {"name": "", "arguments": '{"ok": true}'}}]}, why
        return message, why


WHOLE, STREAM = False, True


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ("thoughts", "reasoning", "thoughts are left in the answer"),
        ("marks", "reasoning", "the marks of thoughts are left among them"),
        ("both", "chosen tool calls", "the call is made, and left in the answer too"),
        ("call left", "chosen tool calls", "the call is left in the answer"),
        ("broken", "tool calls", "what the call holds is no JSON"),
        ("broken", "chosen tool calls", "what the call holds is no JSON"),
        ("other tool", "tool calls", "another tool was called"),
    ],
)
def test_a_parser_that_is_wrong_in_one_kind_of_answer(change: str, name: str, says: str) -> None:
    seen = found(Whole(change, (STREAM,)))[name]
    assert (seen.asked, seen.wrong) == (4, (f"{says}, in a stream",) * 2)
    seen = found(Whole(change, (WHOLE,)))[name]
    assert (seen.asked, seen.wrong) == (4, (says,) * 2)


def test_thoughts_that_are_in_whole_answers_alone() -> None:
    assert found(Whole("lost", (STREAM,)))["reasoning"].wrong == (
        "the thoughts are missing in some answers, in a stream",
    ) * 2  # fmt: skip


def test_a_server_without_a_parser_is_named_as_such() -> None:
    """It splits nothing anywhere: not one answer that slipped through, but a setting that is missing."""
    seen = found(Whole("thoughts", (WHOLE, STREAM)))["reasoning"]
    assert len(seen.wrong) == 4
    assert "splits none off (vLLM: --reasoning-parser)" in seen.wrong[0]


class Refusing(OddServer):
    def status(self, turn: Turn) -> int:
        return 400 if turn.body.get("tool_choice") == "auto" else 200


def test_what_is_refused_is_not_offered_and_its_words_are_kept() -> None:
    seen = found(Refusing())
    assert seen["chosen tool calls"].missing == "status 400: told to fail"
    assert seen["tool calls"].asked == 4
    assert seen["reasoning"].missing == "the model thinks in no separate part"


class Busy(OddServer):
    """The first request of each kind meets a server that is busy."""

    def status(self, turn: Turn) -> int:
        return 503 if turn.number in (1, 7) else 200


def test_one_that_is_busy_once_is_asked_again() -> None:
    seen = found(Busy())
    assert (seen["JSON schema"].asked, seen["tool calls"].asked) == (4, 4)
    assert seen["JSON schema"].missing is None


class Silent(OddServer):
    """Makes no call of its own accord."""

    def message(self, turn: Turn) -> Message:
        if turn.body.get("tool_choice") == "auto":
            return {"role": "assistant", "content": "All is well."}, "stop"
        return super().message(turn)


def test_a_model_that_calls_nothing_shows_nothing() -> None:
    assert found(Silent())["chosen tool calls"].missing == "the model chose to call no tool"


class Long(Thinking):
    """Thinks longer than a short answer is."""

    def message(self, turn: Turn) -> Message:
        if turn.tokens < 500:
            return {"role": "assistant", "content": None, "reasoning": "I am"}, "length"
        return super().message(turn)


def test_long_thoughts_are_given_room() -> None:
    assert all((f.asked, f.wrong) == (4, ()) for f in found(Long()).values())


def test_parts_of_a_stream_are_put_together() -> None:
    def event(delta: dict[str, Any], why: str | None = None) -> dict[str, Any]:
        return {"choices": [{"delta": delta, "finish_reason": why}]}

    def call(at: int, **function: Any) -> dict[str, Any]:
        return event({"content": None, "tool_calls": [{"index": at, "function": function}]})

    made = joined(
        [
            event({"role": "assistant", "content": ""}),
            event({"reasoning": "I "}),
            event({"reasoning": "am"}),
            call(1, name="b"),
            call(0, name="a", arguments=None),
            call(0, arguments="{"),
            call(1, arguments="[]"),
            call(0, arguments="}"),
            {"choices": [], "usage": {}},
            event({}, "stop"),
            None,
        ]
    )
    assert made == {
        "reasoning": "I am",
        "finish_reason": "stop",
        "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}, {"function": {"name": "b", "arguments": "[]"}}],
    }  # fmt: skip

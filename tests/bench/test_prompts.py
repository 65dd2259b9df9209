"""Prompts have the length that was asked for, are new at every level, and the same for the same seed."""

import json
from pathlib import Path
from random import Random

import pytest

from model_optimizer.bench.prompts import Prompt, Text, TokenIds, recorded, write_words
from model_optimizer.bench.request import Manner, Writer
from model_optimizer.bench.target import Target, address
from model_optimizer.bench.vocabulary import likely_ids, ordinary_ids, text_of, tokenizer_file
from model_optimizer.core import Lengths, UsageError, Workload


def members(prompt: Prompt) -> dict[str, object]:
    return json.loads(b"{" + prompt.members + b"}")


def test_token_ids_have_the_exact_length_and_share_what_they_should() -> None:
    prompts = TokenIds(api="completions", ids=range(100, 200), seed=1, shared_prefix=4)
    first, second = (members(prompts.make(0, i, 10))["prompt"] for i in (0, 1))
    assert (len(first), first[:4] == second[:4], first[4:] == second[4:]) == (10, True, False)
    assert set(first) <= set(range(100, 200))
    assert prompts.make(0, 0, 10) == prompts.make(0, 0, 10)
    assert len(members(prompts.make(0, 0, 2))["prompt"]) == 2


def test_a_level_never_repeats_what_another_one_asked() -> None:
    prompts = TokenIds(api="embeddings", ids=range(100, 200), shared_prefix=4)
    assert members(prompts.make(0, 0, 10))["input"] != members(prompts.make(1, 0, 10))["input"]
    assert (
        members(prompts.make(0, 0, 4))["input"] != members(prompts.make(1, 0, 4))["input"]
    )  # the prefix too


def test_words_and_rankings() -> None:
    chat = Text(api="chat", write=write_words, kind="words", exact=False)
    (message,) = members(chat.make(0, 0, 12))["messages"]
    assert (message["role"], len(message["content"].split())) == ("user", 12)
    rerank = members(Text(api="rerank", write=write_words, kind="words", exact=False).make(0, 0, 20))
    assert (len(rerank["query"].split()), [len(d.split()) for d in rerank["documents"]]) == (10, [10] * 4)
    score = Text(api="score", write=write_words, kind="words", exact=False, documents=2).make(0, 0, 40)
    assert set(members(score)) == {"text_1", "text_2"}
    assert score.texts == 2


class Letters:
    """A tokenizer for which every pair of equal letters is one token."""

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            size = 2 if text[:2] == text[:1] * 2 else 1
            ids.append(ord(text[0]) + (1000 if size == 2 else 0))
            text = text[size:]
        return ids

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(i - 1000) * 2 if i > 1000 else chr(i) for i in ids)


@pytest.mark.parametrize("tokens", [1, 7, 100])
def test_text_of_an_exact_length(tokens: int) -> None:
    """Random ids often merge when they are read again; the text must still have the length."""
    ids = tuple(ord(c) + extra for c in "ab" for extra in (0, 1000))
    assert len(Letters().encode(text_of(tokens, ids, Letters(), Random(3)))) == tokens


def test_a_tokenizer_file_tells_ordinary_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1, "<s>": 2}}, "added_tokens": [{"id": 2}]}))
    assert ordinary_ids(tokenizer_file(str(tmp_path))) == (0, 1)
    file.write_text(json.dumps({"model": {"vocab": [["a", -1.5], ["b", -2.0]]}}))
    assert ordinary_ids(file) == (0, 1)
    for bad in ("", "{}", '{"model": {"vocab": 3}}', '{"model": {"vocab": {}}}'):
        file.write_text(bad)
        with pytest.raises(UsageError):
            ordinary_ids(file)
    with pytest.raises(UsageError, match="no tokenizer"):
        tokenizer_file(str(tmp_path / "elsewhere"))


def test_the_ends_of_an_unknown_vocabulary_are_left_out() -> None:
    ids = likely_ids(1000)
    assert (ids[0], ids[-1]) == (50, 949)
    with pytest.raises(UsageError):
        likely_ids(8)


def test_prompts_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = ['"plain"', '{"prompt": "a", "output_tokens": 5}', "", '{"prompt": [1, 2]}']
    file.write_text("\n".join(lines))
    found = recorded(file, "completions")
    assert [members(found.make(0, i, 9))["prompt"] for i in range(4)] == ["plain", "a", [1, 2], "plain"]
    assert (found.make(0, 1, 9).output_tokens, found.make(0, 1, 9).tokens) == (5, None)
    file.write_text('{"messages": [{"role": "system", "content": "x"}]}')
    assert members(recorded(file, "chat").make(0, 0, 1))["messages"] == [{"role": "system", "content": "x"}]
    file.write_text('{"query": "q", "documents": ["a", "b"]}')
    assert members(recorded(file, "rerank").make(0, 0, 1)) == {"query": "q", "documents": ["a", "b"]}


@pytest.mark.parametrize(
    "line",
    ["{", "5", "{}", '{"prompt": 5}', '{"prompt": "a", "output_tokens": 0}', '{"prompt": [1]}', "\xff"],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'{"prompt": "good"}\n' + line.encode("latin-1"))
    with pytest.raises(UsageError, match="line 2"):
        recorded(file, "chat")


def test_an_empty_or_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        recorded(tmp_path / "none", "chat")
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(UsageError, match="no prompts"):
        recorded(tmp_path / "empty", "chat")


def writer(**options: object) -> Writer:
    work = Workload(prompt_tokens=Lengths(kind="uniform", numbers=(5, 50)), output_tokens=Lengths.fixed(7))
    prompts = TokenIds(api="completions", ids=range(100, 200))
    return Writer(Target(url="", **options), address("http://host:1/gate"), "sk-1", work, prompts, seed=4)


def sent(data: bytes) -> tuple[str, dict[str, object]]:
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


def test_requests_as_they_go_over_the_wire() -> None:
    made = writer().make(Manner(api="completions", model="m", stream=True), 0, 0)
    head, body = sent(made.data)
    assert head.startswith("POST /gate/v1/completions HTTP/1.1\r\nHost: host:1\r\n")
    assert "Authorization: Bearer sk-1" in head
    assert int(head.split("Content-Length: ")[1].split()[0]) == len(made.data.partition(b"\r\n\r\n")[2])
    assert len(body.pop("prompt")) == made.prompt_tokens
    assert body == {
        "model": "m",
        "max_tokens": 7,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_lengths_are_the_same_at_every_level_and_contents_are_not() -> None:
    manner = Manner(api="completions", model="m", stream=False, ignore_eos=False, temperature=None)
    first, second = ([writer().make(manner, level, i) for i in range(20)] for level in (0, 1))
    assert [m.prompt_tokens for m in first] == [m.prompt_tokens for m in second]
    assert len({m.prompt_tokens for m in first}) > 5
    assert not {m.data for m in first} & {m.data for m in second}
    assert set(sent(first[0].data)[1]) == {"model", "prompt", "max_tokens"}


def test_calibration_asks_for_fewer_words_than_tokens() -> None:
    manner = Manner(api="completions", model="m", stream=True, slope=1.5, offset=10)
    assert (manner.calibrate(100), manner.calibrate(5)) == (60, 1)
    made = writer().make(manner, 0, 0)
    assert made.prompt_tokens is not None
    assert len(sent(made.data)[1]["prompt"]) == manner.calibrate(made.prompt_tokens)

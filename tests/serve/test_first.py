"""What counts as an answer to the first request."""

import json

import pytest

from model_optimizer.core import Workload
from model_optimizer.serve.first import question, wrong


def completion(text: str | None, tokens: int = 8) -> bytes:
    return json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": tokens}}).encode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (completion("!!!!!!!!"), "exclamation marks"),
        (completion("\x00\x01"), "control characters"),
        (completion("words", tokens=0), "without a token"),
        (completion("words", tokens=900), "900 tokens where 8"),
        (b'{"choices": [], "usage": {"completion_tokens": 1}}', "without a choice"),
        (b"<html>", "no answer of the agreed form"),
    ],
)
def test_nonsense_is_named(body: bytes, says: str) -> None:
    assert says in str(wrong(body, Workload(task="generate")))


@pytest.mark.parametrize("text", ["Paris!", "", "wow!!!", " fox\n", "\u4f60\u597d", None])
def test_answers_of_small_models_are_answers(text: str | None) -> None:
    assert wrong(completion(text), Workload(task="generate")) is None


def test_vectors_and_scores_are_finite_numbers() -> None:
    embed, rerank = Workload(task="embed"), Workload(task="rerank")
    assert wrong(b'{"data": [{"embedding": [0.1]}]}', embed) is None
    assert wrong(b'{"data": [{"embedding": []}]}', embed) == "a vector without numbers"
    assert wrong(b'{"data": [{"embedding": [0.0, 0.0]}]}', embed) == "a vector of zeros"
    assert wrong(b'{"results": [{"relevance_score": 0.2}]}', rerank) is None
    assert "agreed form" in str(wrong(b'{"results": []}', rerank))


def test_an_image_model_is_asked_whether_it_is_ready() -> None:
    assert question(Workload(task="vision"), "m") == ("/v2/models/m/ready", None)

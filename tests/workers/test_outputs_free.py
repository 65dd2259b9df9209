"""Greedy continuations of a model that is a function of its last token."""

from typing import Any

import _outputs_free
import numpy as np
import pytest
from _contract import Failure
from _endpoint import continuation, continued
from _outputs import Tokens

FREE = _outputs_free.Free(3, 4)
VOCABULARY = 50


class Counting:
    """The token after t is t + 1, two nats before the next best; it notes what it was asked to read."""

    def __init__(self) -> None:
        self.read: list[tuple[int, ...]] = []

    def begin(self) -> Any:
        def step(ids: Any) -> Any:
            self.read.append(ids.shape)
            logits = np.zeros((len(ids), VOCABULARY), np.float32)
            logits[np.arange(len(ids)), ids[:, -1] + 1] = 2
            return logits

        return step


def texts(*lengths: int) -> list[Tokens]:
    return [Tokens(np.arange(n, dtype=np.int32), np.zeros(n, np.int32)) for n in lengths]


def test_each_token_is_read_again_and_nothing_else_is() -> None:
    model = Counting()
    tokens = texts(3, 2, 9)
    rows = _outputs_free.rows_of(tokens, FREE)
    found = _outputs_free.run(model.begin, tokens, rows, FREE)
    assert found["free_text"].tolist() == [0, 2]
    assert found["free_ids"].tolist() == [[3, 4, 5, 6]] * 2
    assert found["free_gaps"].tolist() == [[2.0] * 4] * 2
    assert model.read == [(2, 3), (2, 1), (2, 1), (2, 1)]


def test_batches_begin_anew() -> None:
    model = Counting()
    tokens = texts(*[4] * 20)
    found = _outputs_free.run(model.begin, tokens, range(20), FREE)
    assert len(found["free_ids"]) == 20
    assert [shape for shape in model.read if shape[1] == 3] == [(16, 3), (4, 3)]


def test_no_text_is_long_enough() -> None:
    assert _outputs_free.run(Counting().begin, texts(2), [], FREE) == {}


def test_without_a_cache_it_costs_no_more_than_reading_all_texts() -> None:
    """100 texts of 50 tokens are 5,000 tokens; a continuation reads 4 x 5."""
    assert _outputs_free.affordable(texts(*[50] * 100), FREE) == 250
    assert _outputs_free.affordable(texts(3), FREE) == 1


def test_a_server_is_asked_for_ids_and_believed_only_where_they_are_whole() -> None:
    assert continuation("m", [1, 2], 4)["ignore_eos"] is True
    assert continued({"choices": [{"token_ids": [1, 2, 3, 4]}]}, 4) == [1, 2, 3, 4]
    assert continued({"choices": [{"text": "words"}]}, 4) is None
    assert continued({"choices": [{"token_ids": [1, 2]}]}, 4) is None
    for answer in ({}, {"choices": []}, {"choices": [{"token_ids": ["1"] * 4}]}):
        with pytest.raises(Failure):
            continued(answer, 4)

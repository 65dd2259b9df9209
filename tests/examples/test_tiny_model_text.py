"""How the small language model's training text is read from its packages."""

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples/models/make_tiny_qwen3"


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    module = importlib.import_module("corpus")
    for name in ("corpus", "rst"):
        monkeypatch.delitem(sys.modules, name)
    return module


PAGE = """\
:mod:`shelf` --- Things on a shelf
==================================

.. module:: shelf
   :synopsis: Things on a shelf.
.. sectionauthor:: Somebody

See :func:`~os.path.join` and `the page <http://example.org>`_.

.. function:: put(thing, *, where=None)

   Put the *thing* on the shelf, at ``where`` if that is given.

   .. versionadded:: 3.2

.. code-block:: python

   put("vase")
"""


def test_markup_becomes_plain_text(corpus: Any) -> None:
    assert corpus.rst.rst_to_text(PAGE) == (
        "# `shelf` --- Things on a shelf\n\n"
        "See `join` and the page.\n\n"
        "function put(thing, *, where=None)\n\n"
        "   Put the *thing* on the shelf, at `where` if that is given.\n\n"
        "   New in version 3.2\n\n"
        '   put("vase")\n'
    )


def test_described_functions_are_asked_about_by_their_full_name(corpus: Any) -> None:
    ((question, answer),) = corpus.python_conversations(PAGE, random.Random(2))
    assert "`shelf.put`" in question["content"]
    assert answer["content"] == "Put the *thing* on the shelf, at `where` if that is given."


def test_dictionary_lines_are_read(corpus: Any, tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(
        "  1 licence text\n"
        "00000100 03 n 01 thing 0 000 | what is\n"
        "00000200 03 n 02 wicker_basket 0 hamper 0 001 @ 00000100 n 0000 "
        '| a basket with a lid; "she packed a hamper"\n'
    )
    thing, basket = corpus._wordnet_entries(tmp_path / "data.noun")
    assert thing.kind_of is None
    assert basket.words == ("wicker basket", "hamper")
    assert (basket.definition, basket.examples) == ("a basket with a lid", ("she packed a hamper",))
    assert basket.kind_of == "thing"
    assert corpus.entries_text([basket]) == (
        'wicker basket, hamper (noun): a basket with a lid. "she packed a hamper"\n'
    )


def test_a_conversation_is_held_out_with_the_text_it_was_made_from(corpus: Any) -> None:
    groups = [f"wordnet/noun/{at}" for at in range(0, 8000, 8)]
    held = [
        {corpus.Document(corpus=name, group=group, text="").held_out for name in ("wordnet", "chat")}
        for group in groups
    ]
    assert all(len(both) == 1 for both in held)
    assert 5 <= held.count({True}) <= 45

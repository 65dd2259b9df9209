"""What the models are given."""

from pathlib import Path

import pytest

from model_optimizer.core import UsageError
from model_optimizer.core.model import Task
from model_optimizer.verify import texts
from model_optimizer.verify.limits import FIRST


def test_the_built_in_texts_are_enough_and_all_different() -> None:
    found = texts.builtin()
    words = [len(s.text.split()) for s in found.samples]
    assert len(found.samples) == len({s.text for s in found.samples}) >= 120
    assert sorted(words)[len(words) // 2] >= 55
    assert min(words) >= 20
    assert max(words) <= 120


@pytest.mark.parametrize(("task", "least"), [("generate", 120), ("embed", 600), ("rerank", 120)])
def test_every_task_finds_more_than_it_starts_from(task: Task, least: int) -> None:
    groups = texts.builtin().groups(task)
    assert len(groups) >= least > FIRST[task]
    assert len(set(groups)) == len(groups)


def test_the_first_texts_are_a_mixture() -> None:
    """Code, dialogue and prose all among the first twenty, or the first round would be one-sided."""
    first = [group[0].text for group in texts.builtin().groups("generate")[:20]]
    assert any("def " in t or "SELECT" in t or "for (" in t for t in first)
    assert any(t.startswith('"') for t in first)
    assert any("percent" in t or "degrees" in t for t in first)


def test_sentences_are_sentences() -> None:
    for (sample,) in texts.builtin().groups("embed"):
        assert 5 <= len(sample.text.split()) <= 40


def test_each_query_has_its_own_document_and_others() -> None:
    groups = texts.builtin().groups("rerank")
    whole = {s.text for s in texts.builtin().samples}
    for group in groups:
        assert len({s.text for s in group}) == 1
        assert len({s.pair for s in group}) == texts.DOCUMENTS
        query, own = group[0].text, group[0].pair
        assert any(t.startswith(query) and own is not None and t.endswith(own) for t in whole)


def test_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("First line.\n\n  Second line.  \nFirst line.\n")
    found = texts.read(path)
    assert [s.text for s in found.samples] == ["First line.", "Second line."]
    assert found.groups("embed") == found.groups("generate")


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "one"}\n{"prompt": "two", "id": 4}\n')
    assert [s.text for s in texts.read(path).samples] == ["one", "two"]


def test_queries_and_documents(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        '{"query": "q", "document": "a"}\n{"query": "p", "document": "a"}\n{"query": "q", "document": "b"}\n'
    )
    groups = texts.read(path).groups("rerank")
    assert [[(s.text, s.pair) for s in group] for group in groups] == [
        [("q", "a"), ("q", "b")],
        [("p", "a")],
    ]


def test_plain_lines_serve_as_documents_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"line {n}" for n in range(7)))
    groups = texts.read(path).groups("rerank")
    assert len(groups) == 7
    assert [s.pair for s in groups[5]] == ["line 5", "line 6", "line 0", "line 1", "line 2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no text"),
        (b"\n \n", "holds no text"),
        (b"\xff\xfe\x00", "cannot be read as text"),
        (b'{"text": "a"}\n{"text": 5}\n', "line 2 holds no text"),
        (b'{"text": "a"}\nplain\n', "line 2 is not JSON"),
        (b'{"other": "a"}\n', "line 1 holds no text"),
        (b'{"text": "  "}\n', "line 1 holds no text"),
        (b'{"query": "a", "document": 3}\n', "line 1 holds no text"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "texts"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        texts.read(path)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as text"):
        texts.read(tmp_path / "nowhere.txt")


def test_a_task_without_texts_is_refused() -> None:
    with pytest.raises(UsageError, match="vision"):
        texts.builtin().groups("vision")

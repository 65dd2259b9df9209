"""Text files that a user names: pipes, devices, bytes and halves of characters are one error each."""

import os
from pathlib import Path

import pytest

from model_optimizer.core import UsageError
from model_optimizer.system import user_text


def refused(path: Path, largest_bytes: int = 100) -> UsageError:
    with pytest.raises(UsageError) as caught:
        user_text.read(path, largest_bytes=largest_bytes, hint=("like this",), reference="texts")
    assert caught.value.reference == "texts"
    return caught.value


def test_a_pipe_is_not_waited_for_and_a_device_not_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert "no regular file" in refused(path).message


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"ab\0c")
    assert refused(path).cause == ("character 3 is zero",)
    path.write_bytes(b"\xff\xfea\x00")
    assert "cannot be read as text" in refused(path).message
    path.write_text("a" * 101)
    assert "larger than" in refused(path).message
    assert "cannot be read" in refused(tmp_path / "nothing").message


def test_the_mark_that_some_editors_write_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf{}\r\n")
    assert user_text.read(path, largest_bytes=100) == "{}\n"


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": "\\ud800"}', "{", "9" * 5000])
def test_a_line_that_json_or_a_file_cannot_hold_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - words are those of several libraries
        user_text.parse(line)


def test_a_line_is_what_it_says() -> None:
    assert user_text.parse('{"a": "\\u00e9\\ud83d\\ude00"}') == {"a": "\u00e9\U0001f600"}

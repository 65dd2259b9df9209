"""Every `mopt` command that a page, a hint or a fact names exists, with the options that it is given."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import model_optimizer
from model_optimizer.cli.app import app

ROOT = Path(__file__).parents[2]
SOURCES = Path(model_optimizer.__file__).parent
PAGES = [*ROOT.glob("*.md"), *(p for d in ("docs", "evidence", "examples") for p in (ROOT / d).rglob("*.md"))]
NO_WORD = re.compile(r"\.\.\.|…|\[.*")
END = re.compile(r"\s+(?:#|>|\||&&|;)\s|\s{2,}[^\s-]|\s#")
"""Where a command ends: at a comment, a pipe, or the explanation in the next column."""
STARTS = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?mopt (.*)")
NAMED = re.compile(r"(?:^|[\s:`(])mopt ([a-z]+(?: [^\n`;,.]*)?)")
"""A command within a sentence."""


def on_page(page: Path) -> Iterator[str]:
    """The commands of blocks of code and of `quoted` words, without what stands behind them."""
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```|^ {4}(?=\S)(.*(?:\n +\S.*)*)", text, re.M | re.S)
    lines = [line for pair in blocks for block in pair for line in _joined(block)]
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines += [" ".join(quoted.split()) for quoted in re.findall(r"`(mopt [^`]+)`", plain)]
    for line in lines:
        if found := STARTS.match(line.strip()):
            yield END.split(found[1], maxsplit=1)[0].strip()


def _joined(block: str) -> list[str]:
    return re.sub(r"\s*\\\n\s*", " ", block).splitlines()


def in_code(path: Path) -> Iterator[str]:
    """The commands in the texts of a file, as far as they stand on one line; what is filled in is a word."""
    for call in NAMED.findall(re.sub(r"\{[^{}\n]*\}", " X", path.read_text())):
        yield call.split('"')[0]


def in_facts(path: Path) -> Iterator[str]:
    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from texts(inner)

    for text in texts(tomllib.loads(path.read_text())):
        yield from NAMED.findall(text)


def wrong(call: str) -> str | None:
    """Why the command line would refuse a call; None where it would take it."""
    try:
        words = [word for word in shlex.split(call) if not NO_WORD.fullmatch(word)]
    except ValueError:
        words = call.split()
    command: click.Command = app
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"there is no command `{words[0]}`"
        command, words = found, words[1:]
    context = click.Context(command, info_name="mopt", **command.context_settings)
    try:
        command.make_parser(context).parse_args(list(words))
    except click.NoSuchOption as error:
        return f"there is no option `{error.option_name}`"
    except click.BadOptionUsage:  # an option is named without its value
        return None
    return None


def mistakes(calls: Iterator[str]) -> list[str]:
    return [f"mopt {call}: {why}" for call in calls if (why := wrong(call))]


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `mopt pln X`.\n\n```sh\nmopt fit X --gpu h100   # fine\nmopt fit X \\\n  --gpux h100\n```\n"
    )
    assert sorted(mistakes(on_page(page))) == [
        "mopt fit X --gpux h100: there is no option `--gpux`",
        "mopt pln X: there is no command `pln`",
    ]


def test_commands_of_pages_are_those_of_the_command_line() -> None:
    found = {str(page.relative_to(ROOT)): mistakes(on_page(page)) for page in PAGES}
    assert {page: bad for page, bad in found.items() if bad} == {}
    assert sum(1 for page in PAGES for _ in on_page(page)) > 200


def test_commands_in_facts_are_those_of_the_command_line() -> None:
    sentences = ("mopt takes",)
    found = [bad for path in SOURCES.rglob("*.toml") for bad in mistakes(in_facts(path))]
    assert [bad for bad in found if not bad.startswith(sentences)] == []


def test_commands_in_hints_are_those_of_the_command_line() -> None:
    """What follows the name of the program in a sentence is mostly a verb, so unknown commands pass here."""
    calls = [call for path in SOURCES.rglob("*.py") for call in in_code(path)]
    assert [bad for bad in mistakes(iter(calls)) if "there is no command" not in bad] == []
    assert len(calls) > 100

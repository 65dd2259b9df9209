"""`mopt diagnose`: what is the one cause in this log."""

import sys
from pathlib import Path

import click

from model_optimizer.cli import options
from model_optimizer.core import UsageError

GROUP = "understand"


@click.command(short_help="What is the one cause in this log, how sure, what fixes it?")
@click.argument("words", nargs=-1, metavar="LOG|-  or  --run -- COMMAND", type=click.UNPROCESSED)
@options.host_file
@click.option("--run", "run", is_flag=True, help="Run the COMMAND after `--` and diagnose its failure.")
@click.option("--pid", type=click.IntRange(min=1), help="The process that wrote the log: judge its silence.")
@click.option(
    "--after",
    type=options.SecondsType(),
    help="How long without a line counts as silent, such as 10m (the default with --pid).",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when the evidence names no cause.")
@options.as_json
def COMMAND(
    words: tuple[str, ...],
    host_file: Path | None,
    run: bool,
    pid: int | None,
    after: float | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Read a log of any size and name the one cause, what shows it, what confirms it and what fixes it.

    The log may be text, JSON lines, gzip or UTF-16, with the prefixes of docker, kubectl or systemd.

    Says what to send when the evidence is thin. With --run, exits with 5 when the command failed.
    """
    from model_optimizer import api
    from model_optimizer.cli.render_diagnose import diagnosis_json, diagnosis_text

    host = api.load_host(host_file) if host_file else None
    if run:
        if not words or pid is not None or after is not None:
            raise UsageError(
                "--run takes a command after `--`, and no --pid or --after",
                hint=("mopt diagnose --run -- vllm serve MODEL",),
            )
        found = api.diagnose_command(words, host=host, on_line=_echo)
    else:
        found = api.diagnose(_log(words), host=host, pid=pid, silent_limit_s=after)
    click.echo(diagnosis_json(found) if as_json else diagnosis_text(found), nl=False)
    failed = found.command is not None and found.command.exit_code != 0
    unnamed = found.primary is None and strict and (failed or found.command is None)
    raise click.exceptions.Exit(5 if failed else int(unnamed))


def _log(words: tuple[str, ...]) -> Path | None:
    """The log to read; None for standard input."""
    if len(words) > 1:
        raise UsageError("name one log", hint=("to run a command: mopt diagnose --run -- COMMAND",))
    if words and words[0] != "-":
        return Path(words[0])
    if not words and sys.stdin.isatty():
        raise UsageError("name a log, or - for standard input", hint=("see `mopt diagnose --help`",))
    return None


def _echo(line: str) -> None:
    """What the command prints is seen as it comes; the answer alone goes to stdout."""
    from model_optimizer.cli.render import printable

    click.echo(printable(line), err=True)

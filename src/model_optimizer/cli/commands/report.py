"""`mopt report`: a run or a measurement as a page to read."""

import json
from pathlib import Path

import click

from model_optimizer.cli import options
from model_optimizer.cli.render import printable
from model_optimizer.core import UsageError

GROUP = "measure"

_FILE = click.Path(path_type=Path, dir_okay=False)
_FORMATS = ("html", "md", "json")


@click.command(short_help="Read a run or a measurement as HTML, Markdown or JSON.")
@click.argument("run", metavar="RUN")
@click.option(
    "-o", "--out", type=_FILE, multiple=True, help="Write to a file: .html, .md or .json. Repeatable."
)
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="Where the name does not say.  [md]")
@click.option("--at", "at_s", type=float, metavar="SECONDS", help="Say what happened at that moment.")
@options.as_json
def COMMAND(run: str, out: tuple[Path, ...], format_: str | None, at_s: float | None, as_json: bool) -> None:
    """Make a page of a run folder, of a file of `mopt bench --out`, of the folder of a soak or of a study of
    `mopt tune`, or of a result of another tool.

    The HTML is one file that opens offline: tables, latency distributions, latency and throughput against
    load, the timeline of GPU and server, and what failed. Without --out the Markdown is printed.

    \b
    mopt report runs/20261130T120000Z-qwen3-8b -o report.html
    mopt report bench.json -o bench.html -o bench.md
    mopt report studies/20261130T120000Z-qwen3-8b
    mopt report bench.json --at 12.5
    """
    from model_optimizer.flow.results import page, what_happened
    from model_optimizer.system import files

    if at_s is not None:
        lines = what_happened(run, at_s)
        if as_json:
            click.echo(json.dumps({"at_s": at_s, "what": lines}, indent=2))
        else:
            click.echo(
                "\n".join(printable(line) for line in lines) or "nothing that was recorded was unusual"
            )
        return
    if not out:
        click.echo(page(run, "json" if as_json else format_ or "md"), nl=False)
        return
    for file in out:
        kind = format_ or file.suffix.lower().removeprefix(".")
        kind = {"htm": "html", "markdown": "md"}.get(kind, kind)
        if kind not in _FORMATS:
            raise UsageError(
                f"`{file}` does not say what it is to hold", hint=("end it in .html, .md or .json",)
            )
        files.write_atomic(file, page(run, kind))
        click.echo(f"written to {file}", err=True)

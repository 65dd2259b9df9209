"""`mopt compare`: is B better than A, worse, or can it not be said?"""

from pathlib import Path

import click

from model_optimizer.cli import options
from model_optimizer.core import UsageError

GROUP = "measure"

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Is B better than A, worse, or undecided?")
@click.argument("sides", metavar="A [B]", nargs=-1)
@click.option("--force", is_flag=True, help="Compare what is not comparable all the same.")
@click.option("--margin", type=click.FloatRange(0, 1, min_open=True), default=0.03, show_default=True,
              help="A smaller change is never called better or worse.")  # fmt: skip
@click.option("--between-runs", type=click.FloatRange(0, 1),
              help="Added spread, with one run of a side.  [default: 0.03 if none is known]")  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 when it is undecided, too.")
@click.option("--import", "import_", is_flag=True, help="Only convert A, a result of another tool.")
@click.option("--tool", metavar="NAME", help="Which tool wrote the files, where that cannot be told.")
@click.option("--out", type=_FILE, help="Write the answer, or with --import the measurement, to a file.")
@options.as_json
def COMMAND(
    sides: tuple[str, ...],
    force: bool,
    margin: float,
    between_runs: float | None,
    strict: bool,
    import_: bool,
    tool: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare two measurements: runs, files of `mopt bench --out`, results of `vllm bench serve
    --save-result`, GuideLLM or AIPerf. A folder with several result files counts as repeated runs.

    It exits with 1 when B is worse, so that a build can end on it.

    \b
    mopt compare before.json after.json
    mopt compare runs/before runs/after            (the winners)
    mopt compare runs/x:reference runs/x
    mopt compare results/main/ results/branch/     (several runs of each)
    mopt compare --import vllm.json --out ours.json
    """
    from model_optimizer.cli.render_compare import compare_text
    from model_optimizer.core import codec
    from model_optimizer.flow.results import measurements
    from model_optimizer.report.compare import Terms, compare
    from model_optimizer.system import files

    if import_:
        if len(sides) != 1:
            raise UsageError("--import takes one file")
        text = codec.dumps(measurements(sides[0], tool=tool)[0])
        if out:
            files.write_atomic(out, text)
            click.echo(f"written to {out}", err=True)
        else:
            click.echo(text, nl=False)
        return
    if len(sides) != 2:
        raise UsageError("two sides are compared: A and B", hint=("mopt compare before.json after.json",))
    a, b = (measurements(side, tool=tool) for side in sides)
    found = compare(a, b, Terms(margin=margin, between_runs=between_runs, force=force))
    if out:
        files.write_atomic(out, codec.dumps(found))
        click.echo(f"written to {out}", err=True)
    click.echo(codec.dumps(found) if as_json else compare_text(found), nl=False)
    worse = found.verdict == "worse" or (strict and found.verdict == "undecided")
    raise click.exceptions.Exit(int(worse))

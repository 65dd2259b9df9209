"""What `mopt quantize` and `mopt convert` have in common: say what it takes, do it, show what came out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .options import Decorator

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_optimizer.core import Artifact, Progress, Verdict
    from model_optimizer.core.paths import Work

choices: Decorator = options.together(
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        required=True,
        help="The folder to make. It must not exist, and appears when it is whole.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be done and what it takes; do nothing."),
    options.as_json,
)


def carry_out(
    work: "Work",
    out: Path,
    *,
    dry_run: bool,
    as_json: bool,
    make: "Callable[[Path, Progress], Artifact] | None" = None,
    lint: "Callable[[Artifact], Verdict | None] | None" = None,
) -> None:
    """`make` does the work where it is not `api.make`. What `lint` finds is shown too; exits with 1 when that
    is a fault."""
    from model_optimizer import api
    from model_optimizer.core import codec

    from .progress import Reporter
    from .render_making import artifact_text, work_text

    if dry_run:
        click.echo(codec.dumps(work) if as_json else work_text(work, out), nl=False)
        return
    click.echo(work_text(work, out), nl=False, err=True)
    reporter = Reporter()
    try:
        made = make(out, reporter) if make else api.make(work, out, progress=reporter)
    finally:
        reporter.close()
    click.echo(codec.dumps(made) if as_json else artifact_text(made, work.source), nl=False)
    verdict = lint(made) if lint else None
    if verdict is None:
        return
    from .render_verify import verdict_text

    click.echo(verdict_text(verdict), nl=False, err=as_json)
    if verdict.outcome == "fail":
        raise click.exceptions.Exit(1)

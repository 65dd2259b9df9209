"""`mopt optimize`: the whole way, from a checkpoint to a verified, served and measured model."""

from pathlib import Path

import click

from model_optimizer.cli import options
from model_optimizer.core import Lengths

GROUP = "run"
KEPT = frozenset({"model", "dry_run", "texts", "seconds", "runs", "resume", "as_json"})
"""Options that may be given with --resume, or are refused in words of their own."""


def names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """`int8,int4-rtn` as names."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if value else ()


@click.command(short_help="Do it all: plan, make, verify, serve, measure, report.")
@click.argument("model", required=False)
@click.option("--engines", callback=names, metavar="A,B", help="Only these engines.")
@click.option("--schemes", callback=names, metavar="A,B", help="Only these number formats.")
@options.load
@options.slo
@click.option("--vram", "budget", type=options.BytesType(), help="Memory that one server may take.")
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your own texts to verify with, as `mopt verify --texts` reads them.",
)
@click.option(
    "--for",
    "seconds",
    type=options.SecondsType(),
    default="6s",
    show_default=True,
    help="How long each level of load is held.",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default="runs",
    show_default=True,
    help="Where the run folder is made.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RUN",
    help="Finish an interrupted run: what is there is not done again.",
)
@click.option("--dry-run", is_flag=True, help="Show the candidates and what each needs; make nothing.")
@options.as_json
def COMMAND(
    model: str | None,
    engines: tuple[str, ...],
    schemes: tuple[str, ...],
    prompt_tokens: Lengths | None,
    output_tokens: Lengths | None,
    qps: float | None,
    concurrency: int | None,
    requests: int | None,
    ttft_ms: float | None,
    tpot_ms: float | None,
    e2e_ms: float | None,
    percentile: float,
    budget: int | None,
    texts: Path | None,
    seconds: float,
    runs: Path,
    resume: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Optimize MODEL (a folder, or the hub id of a downloaded model) for this machine.

    Makes every variant that can run here, compares each with the original, serves those that pass over HTTP
    on 127.0.0.1, loads them, and keeps the best one that meets the limits. Nothing that failed verification
    is served. Ctrl-C leaves a run that --resume finishes. Exits with 1 when nothing met the limits.
    """
    from model_optimizer import api
    from model_optimizer.cli import render_optimize
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import Slo, UsageError, codec
    from model_optimizer.flow.wiring import Choices

    if model is None and resume is None:
        raise UsageError("name a MODEL, or a run to go on with", hint=("mopt optimize ./my-model",))
    if seconds <= 0:
        raise UsageError("--for must be longer than nothing", hint=("for example --for 6s",))
    if resume:
        _refuse_with_resume(model, dry_run)
    reporter = Reporter()
    try:
        if resume:
            longer = None if _is_default("seconds") else seconds
            run, record = api.resume(resume, texts=texts, seconds=longer, progress=reporter)
        else:
            asked = api.Optimization(
                model=model or "",
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                qps=qps,
                concurrency=concurrency,
                requests=requests,
                slo=Slo(ttft_ms=ttft_ms, tpot_ms=tpot_ms, e2e_ms=e2e_ms, percentile=percentile),
                choices=Choices(
                    engines=engines, schemes=schemes, budget_bytes=budget, texts=texts, seconds=seconds
                ),
            )
            if dry_run:
                found = api.candidates(asked, progress=reporter)
                text = codec.dumps(found) if as_json else render_optimize.candidates_text(found)
                click.echo(text, nl=False)
                return
            run, record = api.optimize(asked, runs, progress=reporter)
    finally:
        reporter.close()
    if as_json:
        click.echo(codec.dumps(record), nl=False)
    else:
        click.echo(render_optimize.record_text(record, run), nl=False)
    raise click.exceptions.Exit(int(record.run.winner is None))


def _is_default(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) != click.core.ParameterSource.COMMANDLINE


def _refuse_with_resume(model: str | None, dry_run: bool) -> None:
    """A run keeps what it was asked: other options would be ignored, so they are refused."""
    from model_optimizer.core import UsageError

    if model or dry_run:
        word = "--dry-run" if dry_run else "a MODEL"
        raise UsageError(f"{word} and --resume exclude each other", hint=("a run knows its model",))
    context = click.get_current_context()
    given = [name for name in context.params if name not in KEPT and not _is_default(name)]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        hint = ("a run keeps what it was asked: start a new one",)
        raise UsageError(f"{options} and --resume exclude each other", hint=hint)

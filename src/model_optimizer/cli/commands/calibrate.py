"""`mopt calibrate`: replace the datasheet's numbers of this machine's GPU by its own."""

import sys
from pathlib import Path

import click

from model_optimizer.cli import options

GROUP = "measure"


@click.command(short_help="30 s of micro-benchmarks of this machine's GPU, for `mopt estimate`.")
@click.option(
    "--python",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(sys.executable),
    help="Interpreter with a CUDA build of PyTorch, for example that of vLLM.  [default: this one]",
)
@click.option(
    "--model", default="Qwen/Qwen3-8B", show_default=True, help="The model whose shapes are measured."
)
@click.option("--gpu", metavar="NAME", help="Its name in the facts, where the driver's is not enough.")
@click.option(
    "--for", "seconds", type=options.SecondsType(), default="30s", show_default=True, help="How long."
)
@click.option(
    "--write-request",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write what to measure to this file, and say how to measure it on a machine without mopt.",
)
@click.option(
    "--answer",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Take what the script measured there, instead of measuring here.",
)
@options.as_json
def COMMAND(
    python: Path,
    model: str,
    gpu: str | None,
    seconds: float,
    write_request: Path | None,
    answer: Path | None,
    as_json: bool,
) -> None:
    """Measure copies, matrix products at the shapes of a model, and launches on this machine's GPU.

    What is found is kept in the data folder, and `mopt estimate` takes it for this kind of GPU from then on.
    Nothing else should run on the GPU meanwhile. On a machine that has PyTorch and no mopt, --write-request
    and --answer do the same in two halves.
    """
    from model_optimizer import api
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_estimate import calibration_text
    from model_optimizer.core import codec

    if write_request is not None:
        from model_optimizer.flow import calibrate as halves

        line = halves.write_request(write_request, model=model, seconds=seconds)
        click.echo(f"copy these to the machine: {write_request} {halves.SCRIPT} {halves.CONTRACT}")
        click.echo(f"run there: {line}")
        click.echo("then here: mopt calibrate --answer result.json")
        return
    reporter = Reporter()
    try:
        found, path = api.calibrate(
            python, model=model, gpu=gpu, seconds=seconds, progress=reporter, answer=answer
        )
    finally:
        reporter.close()
    click.echo(codec.dumps(found) if as_json else calibration_text(found, str(path)), nl=False)

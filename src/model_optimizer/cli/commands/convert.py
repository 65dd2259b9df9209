"""`mopt convert`: a model in another format."""

from pathlib import Path

import click

from model_optimizer.cli import making

GROUP = "make"


@click.command(short_help="Make a model in another format, or for an engine.")
@click.argument("model")
@click.option("--to", required=True, metavar="FORMAT|ENGINE", help="For example onnx, or onnxruntime.")
@click.option("--scheme", help="The number format; left out, that of the model, or else 32 bits.")
@making.choices
def COMMAND(model: str, to: str, scheme: str | None, out: Path, dry_run: bool, as_json: bool) -> None:
    """Convert MODEL (a folder or a hub id) and prove that the result computes the same.

    What it takes is said before work begins; a format that cannot be made is refused with the list of those
    that can.
    """
    from model_optimizer import api

    work = api.plan_making(model, scheme=scheme, to=to)
    making.carry_out(work, out, dry_run=dry_run, as_json=as_json)

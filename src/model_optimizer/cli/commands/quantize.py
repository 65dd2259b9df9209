"""`mopt quantize`: a model with fewer bits."""

from pathlib import Path

import click

from model_optimizer.cli import making

GROUP = "make"


@click.command(short_help="Make a model with fewer bits.")
@click.argument("model")
@click.option("--scheme", required=True, help="The number format, for example int8 or int4-rtn.")
@making.choices
def COMMAND(model: str, scheme: str, out: Path, dry_run: bool, as_json: bool) -> None:
    """Quantize MODEL (a folder or a hub id) to a scheme, with the field's own tools.

    A conversion comes first where the quantizer reads another format. What it takes is said before work
    begins; a scheme that cannot be made is refused with the list of those that can.
    """
    from model_optimizer import api

    work = api.plan_making(model, scheme=scheme)
    making.carry_out(work, out, dry_run=dry_run, as_json=as_json)

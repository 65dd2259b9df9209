"""`mopt doctor`: is this machine ready, layer by layer."""

from pathlib import Path

import click

from model_optimizer.cli import options

GROUP = "understand"


@click.command(short_help="Is this machine ready, layer by layer?")
@options.host_file
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write what was read of this machine to a file, to replay or attach it elsewhere.",
)
@options.as_json
def COMMAND(host_file: Path | None, save: Path | None, as_json: bool) -> None:
    """Check this machine, or one that was saved, from the processor to the serving engine.

    Nothing is changed and no root is needed. Exits with 1 when a check fails.
    """
    from model_optimizer import api
    from model_optimizer.cli.render_doctor import findings_json, findings_text
    from model_optimizer.core import codec

    host = api.load_host(host_file) if host_file else api.probe()
    if save:
        api.save(host, save)
        click.echo(f"saved to {save}", err=True)
    findings = api.doctor(host)
    if as_json:
        click.echo(findings_json(findings, codec.to_builtins(host)), nl=False)
    else:
        click.echo(findings_text(findings), nl=False)
    raise click.exceptions.Exit(int(any(f.status == "fail" for f in findings)))

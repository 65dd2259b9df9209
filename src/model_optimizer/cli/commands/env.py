"""`mopt env`: the environments that heavy stages run in."""

import json
from pathlib import Path

import click

from model_optimizer.cli import options

GROUP = "make"

_index = click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="NAME|URL",
    help="An index that the lock names for some packages (torch-cpu), or the address of one to ask instead "
    "of what pip is configured with. Default: MOPT_INDEX.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Print the commands that would run.")


@click.group(short_help="Make, check and bundle the environments that heavy stages run in.")
def COMMAND() -> None:
    """Stages that need PyTorch, ONNX Runtime or an engine run in environments of their own.

    Each is made from a lock: a folder with about.toml and packages.lock. Those that ship can be joined or
    replaced by folders in `locks` of your data folder (MOPT_HOME, by default ~/.local/share/model-optimizer).
    """


@COMMAND.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """Every environment, and whether it is ready."""
    from model_optimizer.cli.render_env import environments_text
    from model_optimizer.core import codec
    from model_optimizer.system import environments

    found = environments.list_all()
    if as_json:
        body = {"environments": [json.loads(codec.dumps(env)) for env in found]}
        click.echo(json.dumps(body, indent=2, ensure_ascii=False))
    else:
        click.echo(environments_text(found), nl=False)


@COMMAND.command()
@click.argument("name")
@click.option(
    "--from",
    "from_dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Install from a bundle; nothing is downloaded.",
)
@click.option("--python", type=click.Path(path_type=Path), help="The Python to make it with.")
@_index
@click.option("--again", is_flag=True, help="Make it anew even if it is ready.")
@_dry_run
@options.as_json
def create(
    name: str,
    from_dir: Path | None,
    python: Path | None,
    indexes: tuple[str, ...],
    again: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make an environment from its lock. What it downloads, writes and holds is said first.

    It gets its name only when it is complete and imports what it should, so an interrupted one is never used.
    """
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_env import environment_text
    from model_optimizer.core import codec
    from model_optimizer.system import environments

    if dry_run:
        planned = environments.commands(name, python=python, from_dir=from_dir, indexes=indexes)
        _print_commands(planned, as_json)
        return
    report = Reporter()
    try:
        made = environments.create(
            name, progress=report, python=python, from_dir=from_dir, indexes=indexes, again=again
        )
    finally:
        report.close()
    click.echo(codec.dumps(made) if as_json else environment_text(made), nl=False)


@COMMAND.command()
@click.argument("name")
@options.as_json
def check(name: str, as_json: bool) -> None:
    """Compare an environment with its lock and import what it should. Exits with 1 when it is not ready."""
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_env import environment_text
    from model_optimizer.core import codec
    from model_optimizer.system import environments

    report = Reporter()
    try:
        found = environments.check(name, progress=report)
    finally:
        report.close()
    click.echo(codec.dumps(found) if as_json else environment_text(found), nl=False)
    raise click.exceptions.Exit(int(found.condition != "ready"))


@COMMAND.command()
@click.argument("name")
@options.as_json
def remove(name: str, as_json: bool) -> None:
    """Remove an environment from the disk."""
    from model_optimizer.core.units import show_bytes
    from model_optimizer.system import environments

    freed = environments.remove(name)
    if as_json:
        click.echo(json.dumps({"name": name, "freed_bytes": freed}))
    else:
        click.echo(f"removed {name}, {show_bytes(freed)} are free again")


@COMMAND.command()
@click.argument("name")
@click.option("--python", "python_version", required=True, metavar="X.Y", help="The Python there.")
@click.option(
    "--platform",
    default="linux-x86_64",
    show_default=True,
    help="The machine there.",
)
@click.option(
    "--max-part",
    type=options.BytesType(),
    default="38MiB",
    show_default=True,
    help="The largest size of one file.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@_index
@_dry_run
@options.as_json
def bundle(
    name: str,
    python_version: str,
    platform: str,
    max_part: int,
    out: Path,
    indexes: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Download an environment as files in parts, for a machine that reaches no package index.

    When it is interrupted, the next try uses what was downloaded.
    """
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_env import bundle_text
    from model_optimizer.core import codec
    from model_optimizer.system import environments

    if dry_run:
        planned = environments.download_commands(
            name, python_version=python_version, platform=platform, out=out, indexes=indexes
        )
        _print_commands(planned, as_json)
        return
    report = Reporter()
    try:
        made = environments.bundle(
            name,
            python_version=python_version,
            platform=platform,
            max_part=max_part,
            out=out,
            progress=report,
            indexes=indexes,
        )
    finally:
        report.close()
    click.echo(codec.dumps(made) if as_json else bundle_text(made, str(out)), nl=False)


def _print_commands(commands: tuple[tuple[str, ...], ...], as_json: bool) -> None:
    from model_optimizer.cli.render_env import commands_text

    if as_json:
        click.echo(json.dumps({"commands": [list(command) for command in commands]}, indent=2))
    else:
        click.echo(commands_text(commands), nl=False)

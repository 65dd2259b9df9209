"""The root command: finds its commands in the folder beside it and lists them by group."""

import click

from model_optimizer import __version__
from model_optimizer.core import plugins

FOLDER = "model_optimizer.cli.commands"
GROUPS = ("understand", "make", "run", "measure", "ship")


class Commands(click.Group):
    """A group whose commands are the files of a folder; only the one that is called is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(plugins.names(FOLDER))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if plugins.canonical(cmd_name) not in plugins.names(FOLDER):
            return None
        return plugins.load(FOLDER, cmd_name).COMMAND

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command `{name}`{_nearest(name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        modules = plugins.load_all(FOLDER)
        width = max(map(len, modules))
        for group in GROUPS:
            rows = [
                (name.ljust(width), module.COMMAND.get_short_help_str(70))
                for name, module in modules.items()
                if group == module.GROUP
            ]
            if rows:
                with formatter.section(group.capitalize()):
                    formatter.write_dl(rows)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, plugins.names(FOLDER), n=2)
    return f"; did you mean {' or '.join(f'`{n}`' for n in found)}?" if found else ""


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`mopt COMMAND --help` shows the options of one command.",
)
@click.version_option(__version__, message="mopt %(version)s")
def app() -> None:
    """Take a model and four hard facts (which GPU, how many requests per second, how much memory, how
    fast it must answer) to a running, verified and measured deployment."""

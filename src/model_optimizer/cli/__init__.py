"""The command line: reads arguments, calls one stage, prints its answer. Decides nothing."""

import errno
import io
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from model_optimizer.core import MoptError

__all__ = ["main"]


def main() -> NoReturn:
    """Run `mopt` with the arguments of this process. Errors become one message and an exit code."""
    import click

    from model_optimizer.core import HostError, MoptError, UsageError

    from .app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if bad := next((word for word in sys.argv if not word.isprintable() and _is_broken(word)), None):
            raise UsageError(f"`{bad}` is not text in this system's encoding", hint=("rename it",))
        sys.exit(app(standalone_mode=False, prog_name="mopt") or 0)
    except MoptError as error:
        _report(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "mopt"
        _report(UsageError(error.format_message(), hint=(f"see `{command} --help`",)))
    except click.ClickException as error:
        _report(UsageError(error.format_message()))
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG and error.filename:
            _report(UsageError(f"`{str(error.filename)[:60]}...` is longer than a name may be"))
        if error.errno not in (errno.ENOSPC, errno.EIO) or error.filename:
            _report_bug()
        unwritten = HostError("the answer cannot be written", cause=(error.strerror or str(error),))
        _report(unwritten, unwritten=True)
    except Exception:  # noqa: BLE001 - the one place where a bug of ours is met
        _report_bug()


def _is_broken(word: str) -> bool:
    """Bytes that are no text reach Python as lone surrogates."""
    return any("\ud800" <= c <= "\udfff" for c in word)


def _report(error: "MoptError", *, unwritten: bool = False) -> NoReturn:
    """`unwritten`: nothing more can be said on the standard output."""
    import click

    from .render import error_json, error_text

    if error.exit_code == 5:
        from model_optimizer import api

        error = api.explained(error)
    if "--json" in sys.argv and not unwritten:
        click.echo(error_json(error), nl=False)
    else:
        click.echo(error_text(error), nl=False, err=True)
    sys.exit(error.exit_code)


def _report_bug() -> NoReturn:
    import traceback

    import click

    traceback.print_exc()
    click.echo("\nThis is a bug in mopt. Please report it with the lines above.", err=True)
    sys.exit(70)

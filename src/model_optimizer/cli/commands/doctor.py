"""`mopt doctor`: is this machine ready, layer by layer, and for what."""

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from model_optimizer.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_optimizer.core import Finding, Host

GROUP = "understand"


@click.command(short_help="Is this machine ready, layer by layer?")
@click.argument("url", required=False)
@options.host_file
@click.option(
    "--for",
    "target",
    metavar="THING",
    help="Check before pulling: an image, a package (vllm==0.33.0) or a ./Dockerfile.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write what was read of this machine to a file, without names, serial numbers and addresses.",
)
@click.option("--all", "everything", is_flag=True, help="List every check instead of a line a layer.")
@click.option("--script", is_flag=True, help="Print a shell script that makes it ready; nothing is run.")
@click.option("--model", metavar="NAME", help="With URL: the model that clients will ask for.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@options.as_json
def COMMAND(
    url: str | None,
    host_file: Path | None,
    target: str | None,
    save: Path | None,
    everything: bool,
    script: bool,
    model: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Check this machine, or one that was saved, from the processor to the serving engine.

    With URL it asks a running model server instead; a key is read from MOPT_API_KEY, OPENAI_API_KEY or
    VLLM_API_KEY. Nothing is changed and no root is needed. Exits with 1 when a check fails.
    """
    if url is not None or model is not None:
        mixed = ("--host", host_file), ("--for", target), ("--save", save), ("--script", script)
        _about_server(url, model, [name for name, given in mixed if given], (everything, strict, as_json))
    from model_optimizer import api
    from model_optimizer.cli import render_doctor
    from model_optimizer.core import codec

    if script:
        _require_alone(("--json", as_json), ("--all", everything), ("--strict", strict))
    if save:
        _require_folder(save)
    host = api.load_host(host_file) if host_file else api.probe(ask_hub=True)
    findings = api.doctor(host, target)
    if save:
        _save(host, save)
    if script:
        from model_optimizer.doctor.script import compose

        click.echo(compose(host, findings), nl=False)
        return
    if as_json:
        click.echo(render_doctor.findings_json(findings, codec.to_builtins(host)), nl=False)
    else:
        click.echo(render_doctor.report(host, findings, everything=everything), nl=False)
        _offer_script(host, findings, host_file)
    raise click.exceptions.Exit(_code(findings, strict))


def _about_server(
    url: str | None, model: str | None, mixed: list[str], screen: tuple[bool, bool, bool]
) -> NoReturn:
    """The findings about a running server, and the exit code."""
    from model_optimizer.cli import render_doctor
    from model_optimizer.core import UsageError, codec
    from model_optimizer.doctor import examine_endpoint
    from model_optimizer.system.probe import endpoint as asking

    everything, strict, as_json = screen
    if url is None:
        raise UsageError("--model is asked of a server", hint=("mopt doctor URL --model NAME",))
    if mixed:
        raise UsageError(f"{', '.join(mixed)} is about a machine, and `{url}` is a server")
    found = asking.read(url, wanted=model)
    findings = examine_endpoint(found)
    if as_json:
        text = render_doctor.findings_json(findings, codec.to_builtins(found), "endpoint")
    else:
        text = render_doctor.endpoint_report(found, findings, everything=everything)
    click.echo(text, nl=False)
    raise click.exceptions.Exit(_code(findings, strict))


def _code(findings: "Sequence[Finding]", strict: bool) -> int:
    bad = ("fail", "warn") if strict else ("fail",)
    return int(any(f.status in bad for f in findings))


def _offer_script(host: "Host", findings: "Sequence[Finding]", host_file: Path | None) -> None:
    """Where steps of ours mend what failed, say so; on stderr, beside the answer."""
    if not any(f.status == "fail" for f in findings):
        return
    from model_optimizer.doctor.script import mends

    if mends(host, findings):
        where = f" --host {host_file}" if host_file else ""
        click.echo(f"all of it as one script to read first: mopt doctor --script{where}", err=True)


def _require_alone(*options: tuple[str, bool]) -> None:
    from model_optimizer.core import UsageError

    if others := [name for name, given in options if given]:
        raise UsageError(f"--script prints a script and nothing else; leave out {', '.join(others)}")


def _require_folder(path: Path) -> None:
    from model_optimizer.core import UsageError

    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder `{path.parent}` to save in", hint=("make it first, or name another file",)
        )


def _save(host: "Host", path: Path) -> None:
    from model_optimizer import api
    from model_optimizer.system.probe import anonymous

    api.save(anonymous(host), path)
    click.echo(f"saved to {path}, without names, serial numbers and addresses", err=True)

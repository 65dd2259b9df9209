"""`mopt explain`: what a flag, a metric, a scheme, a claim or an old command line means today."""

import shlex
import sys
from pathlib import Path

import click

from model_optimizer.cli import options
from model_optimizer.core import UsageError

GROUP = "understand"


@click.command(
    short_help="What does this flag, claim or old command line mean today?",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)
@click.argument("words", nargs=-1, metavar="THING...", type=click.UNPROCESSED)
@click.option("--gpu", help="The GPU that the answer is for, such as `4060 laptop`.")
@click.option(
    "--engine", help="The engine and release that the answer is for: vllm==0.25.1, tensorrt==10.16."
)
@options.host_file
@click.option("--diff", is_flag=True, help="THING is ENGINE OLD NEW: what an upgrade changes.")
@options.as_json
def COMMAND(
    words: tuple[str, ...],
    gpu: str | None,
    engine: str | None,
    host_file: Path | None,
    diff: bool,
    as_json: bool,
) -> None:
    """Explain a flag, a metric, a scheme, a variable, a common claim, a command line or a Dockerfile.

    THING is words (put a command line in quotes), a file, or - for standard input:

    \b
      mopt explain --max-num-seqs
      mopt explain "trtexec --onnx=m.onnx --fp16 --workspace=4096"
      mopt explain "is GPU-Util the share of busy cores?"
      mopt explain --diff vllm 0.25 0.33

    Exits with 1 when nothing is known of it.
    """
    from model_optimizer.cli import render_explain
    from model_optimizer.explain import changes, explain

    if diff:
        from model_optimizer.facts import gpus

        found = changes(*_releases(words), _learned(), gpu=gpus.find(gpu) if gpu else None)
        text = render_explain.changes_json(found) if as_json else render_explain.changes_text(found)
    else:
        answer = explain(_question(words, gpu, engine, host_file))
        text = render_explain.explanation_json(answer) if as_json else render_explain.explanation_text(answer)
    click.echo(text, nl=False)


def _releases(words: tuple[str, ...]) -> tuple[str, str, str]:
    if len(words) != 3:
        raise UsageError(
            "--diff takes an engine and two releases", hint=("mopt explain --diff vllm 0.25 0.33",)
        )
    return words[0], words[1].removeprefix("v"), words[2].removeprefix("v")


def _question(words: tuple[str, ...], gpu: str | None, engine: str | None, host_file: Path | None):
    from model_optimizer.explain import Question
    from model_optimizer.facts import gpus

    name, version = _engine(engine)
    host = None
    if host_file is not None:
        from model_optimizer import api

        host = api.load_host(host_file)
        if gpu is None and host.gpus:
            gpu = _known(host.gpus[0].name)
    return Question(
        thing=_thing(words),
        gpu=gpus.find(gpu) if gpu else None,
        driver=host.driver_version if host else None,
        engine=name,
        version=version,
        learned=_learned(),
    )


def _known(name: str) -> str | None:
    """The GPU of a host, when the facts have it: an unknown one takes nothing from the answer."""
    from model_optimizer.facts import gpus

    try:
        return gpus.find(name).name
    except UsageError:
        return None


def _learned():
    from model_optimizer.system import learned

    return learned.tables()


def _engine(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    from model_optimizer.explain import names
    from model_optimizer.facts.versions import key

    name, equals, version = text.partition("==")
    name = name.strip().lower().replace("-", "_")
    if not names.programs(name):
        raise UsageError(
            f"there are no tables of `{name}`", hint=(f"there are of {', '.join(names.TITLES)} and tensorrt",)
        )
    if equals:
        key(version)
    return name, version.strip().removeprefix("v") if equals else None


def _thing(words: tuple[str, ...]) -> str:
    """The words as one text; the content of a file that one word names; standard input for `-`."""
    if words == ("-",) or (not words and not sys.stdin.isatty()):
        return _decoded(sys.stdin.buffer.read(200_001), "standard input")
    if len(words) == 1:
        path = Path(words[0])
        if len(words[0]) < 1000 and "\n" not in words[0] and "\0" not in words[0] and _is_file(path):
            try:
                with path.open("rb") as file:
                    return _decoded(file.read(200_001), str(path))
            except OSError as error:
                raise UsageError(f"`{path}` cannot be read", cause=(error.strerror or str(error),)) from error
        return words[0]
    quoted = any(" " in word for word in words)
    return shlex.join(words) if quoted else " ".join(words)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data[:4096]:
        raise UsageError(f"`{name}` is binary, not text", hint=("for a log: mopt diagnose LOG",))
    return data.decode("utf-8", errors="replace")

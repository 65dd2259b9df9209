"""`mopt facts`: what the product knows, from where, and which of it was never checked."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import click

from model_optimizer.cli import options

GROUP = "understand"
CAPABILITIES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


@click.group(short_help="What the product knows, and where it is from.", invoke_without_command=True)
@click.pass_context
def COMMAND(context: click.Context) -> None:
    """Print what the product knows of GPUs, models, drivers, engines and number formats.

    Each row comes with its sources; what was never checked is marked. Without NAME: the list.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def subject(name: str, metavar: str) -> Callable[[Callable[[str, bool], None]], click.Command]:
    """A subcommand that takes a name in any number of words, or none for the list."""

    def decorate(function: Callable[[str, bool], None]) -> click.Command:
        def call(words: tuple[str, ...], as_json: bool) -> None:
            function(" ".join(words), as_json)

        argument = click.argument("words", nargs=-1, metavar=f"[{metavar}]")
        call.__doc__ = function.__doc__
        return COMMAND.command(name)(argument(options.as_json(call)))

    return decorate


def _show(text: Callable[[], str], answer: object, as_json: bool) -> None:
    click.echo(_json(answer) if as_json else text(), nl=False)


def _json(answer: object) -> str:
    """A noun, or an array of nouns where a list was asked for."""
    import json

    from model_optimizer.core import codec

    if not isinstance(answer, tuple):
        return codec.dumps(answer)
    rows = [codec.to_builtins(row) for row in cast("tuple[object, ...]", answer)]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


@subject("gpu", "NAME")
def gpu(name: str, as_json: bool) -> None:
    """A GPU by any of its names.

    `4060 laptop`, `H100-SXM` and what the driver calls it all work; a name that fits several lists them.
    """
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import gpus

    if not name:
        facts = gpus.load_all()
        return _show(lambda: render_facts.gpus(facts), facts, as_json)
    found = gpus.match(name)
    if as_json and found.because:
        click.echo(found.because, err=True)
    return _show(lambda: render_facts.gpu(found), found.fact, as_json)


@subject("model", "ID")
def model(name: str, as_json: bool) -> None:
    """The shape of a model, by its hub id.

    Ids of the Hugging Face hub and of ModelScope work, and names without the organisation.
    """
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import models

    if not name:
        facts = tuple(models.get(i) for i in models.ids())
        return _show(lambda: render_facts.models(facts, len(models.aliases())), facts, as_json)
    found = models.get(name)
    return _show(lambda: render_facts.model(found), found, as_json)


@subject("driver", "VERSION|BRANCH|RULE")
def driver(name: str, as_json: bool) -> None:
    """What a driver runs, or one of the rules."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import drivers

    if not name:
        oldest, branches, rules = drivers.minimums(), drivers.branches(), drivers.rules()
        everything = (*oldest, *branches, *rules)
        return _show(lambda: render_facts.drivers(oldest, branches, rules), everything, as_json)
    if not any(letter.isdigit() for letter in name) or name in {r.id for r in drivers.rules()}:
        found = drivers.rule(name)
        return _show(lambda: render_facts.rule(found), found, as_json)
    described = drivers.describe(name)
    return _show(lambda: render_facts.driver(described), described, as_json)


@subject("cuda", "VERSION")
def cuda(name: str, as_json: bool) -> None:
    """A release of CUDA, and which drivers run it."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import drivers

    if not name:
        facts = drivers.toolkits()
        return _show(lambda: render_facts.cudas(facts), facts, as_json)
    found, oldest = drivers.toolkit(name), drivers.minimum(name)
    return _show(lambda: render_facts.cuda(found, oldest), found, as_json)


@subject("vllm", "VERSION|FLAG|METRIC")
def vllm(name: str, as_json: bool) -> None:
    """A release of vLLM, a flag or a metric.

    A flag is written without its dashes: `mopt facts vllm swap-space`.
    """
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import architectures, vllm

    if not name:
        facts = tuple(vllm.release(v) for v in vllm.versions())
        return _show(lambda: render_facts.vllms(facts, vllm.notes()), facts, as_json)
    if name[0].isalpha() and not name[1:2].isdigit():
        return _vllm_word(name, as_json)
    found = vllm.release(name)
    known = found.version in architectures.versions("vllm")
    registry = architectures.release(found.version) if known and not as_json else None
    hints = [note for note in vllm.notes() if note.subject == name]
    return _show(lambda: render_facts.vllm(found, registry, hints), found, as_json)


def _vllm_word(name: str, as_json: bool) -> None:
    from model_optimizer.cli import render_facts
    from model_optimizer.core import UsageError
    from model_optimizer.facts import vllm

    flag = vllm.flag(f"--{name.replace('_', '-')}")
    if flag:
        return _show(lambda: render_facts.flag(flag), flag, as_json)
    metric = next((m for m in vllm.metrics() if name in (m.metric, m.metric.partition(":")[2])), None)
    if metric:
        return _show(lambda: render_facts.metric(metric), metric, as_json)
    raise UsageError(
        f"there is no release, flag or metric `{name}` of vLLM in the facts",
        hint=("a flag is written without the two dashes: mopt facts vllm swap-space",),
    )


@subject("tensorrt", "VERSION")
def tensorrt(name: str, as_json: bool) -> None:
    """A release of TensorRT."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import tensorrt

    if not name:
        facts = tuple(tensorrt.release(v) for v in tensorrt.versions())
        return _show(lambda: render_facts.releases(facts), facts, as_json)
    found = tensorrt.release(name)
    return _show(lambda: render_facts.tensorrt(found), found, as_json)


@subject("tensorrt-rtx", "VERSION")
def tensorrt_rtx(name: str, as_json: bool) -> None:
    """A release of TensorRT for RTX."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import tensorrt

    if not name:
        facts = tuple(tensorrt.rtx_release(v) for v in tensorrt.rtx_versions())
        return _show(lambda: render_facts.releases(facts), facts, as_json)
    found = tensorrt.rtx_release(name)
    return _show(lambda: render_facts.tensorrt_rtx(found), found, as_json)


@subject("tensorrt-llm", "VERSION")
def tensorrt_llm(name: str, as_json: bool) -> None:
    """A release of TensorRT-LLM."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import tensorrt_llm

    if not name:
        facts = tuple(tensorrt_llm.release(v) for v in tensorrt_llm.versions())
        return _show(lambda: render_facts.releases(facts), facts, as_json)
    found = tensorrt_llm.release(name)
    return _show(lambda: render_facts.tensorrt_llm(found), found, as_json)


@subject("format", "NAME")
def number_format(name: str, as_json: bool) -> None:
    """A number format, and which GPUs compute in it."""
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import formats

    def supports(which: str) -> list[formats.Support]:
        return [formats.support(which, c) for c in CAPABILITIES]

    if not name:
        facts = tuple(formats.find(n) for n in formats.names())
        rows = [(f, supports(f.name)) for f in facts]
        return _show(lambda: render_facts.formats(rows, CAPABILITIES), facts, as_json)
    found = formats.find(name)
    pairs = list(zip(CAPABILITIES, supports(found.name), strict=True))
    return _show(lambda: render_facts.number_format(found, pairs), found, as_json)


@subject("architecture", "NAME")
def architecture(name: str, as_json: bool) -> None:
    """Which engine releases serve an architecture.

    The name is the one in config.json, for example `Qwen3ForCausalLM`.
    """
    from model_optimizer.cli import render_facts
    from model_optimizer.facts import architectures

    engines = architectures.engines()
    if not name:
        pairs = [(engine, version) for engine in engines for version in architectures.versions(engine)]
        read = tuple(architectures.release(version, engine=engine) for engine, version in pairs)
        return _show(lambda: render_facts.architectures(read), read, as_json)
    served = {engine: architectures.releases_of(name, engine=engine) for engine in engines}
    everything = tuple(release for releases in served.values() for release in releases)
    return _show(lambda: render_facts.architecture(name, served), everything, as_json)


@COMMAND.command("learn", short_help="Read options and defaults from an installed engine.")
@click.argument("engine")
@click.option(
    "--python",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The interpreter that the engine is installed for, instead of the environment made from a lock.",
)
@options.as_json
def learn(engine: str, python: Path | None, as_json: bool) -> None:
    """Read the options, defaults, variables and metrics of an engine that is installed here.

    They are kept in the user's data folder, marked learned, and `mopt explain` uses them.
    """
    from model_optimizer.cli import render_explain
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.explain.learn import learn as read

    reporter = Reporter()
    try:
        found = read(engine, python=python, progress=reporter)
    finally:
        reporter.close()
    _show(lambda: render_explain.learned_text(found), found.table, as_json)


@subject("measured", "WORD")
def measured(name: str, as_json: bool) -> None:
    """What was measured on this machine, beside what was predicted.

    WORD keeps the rows of an engine, a model or a quantity that have it in their name.
    """
    from model_optimizer.cli import render_ledger
    from model_optimizer.system import ledger

    rows = tuple(
        row
        for row in ledger.read()
        if name.lower() in " ".join((row.engine, row.model, row.quantity, row.gpu)).lower()
    )
    _show(lambda: render_ledger.ledger_text(rows), rows, as_json)

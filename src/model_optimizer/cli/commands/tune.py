"""`mopt tune`: which settings are best on this machine under the SLO."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_optimizer.cli import options
from model_optimizer.core import UsageError

if TYPE_CHECKING:
    from model_optimizer.core.study import Shape
    from model_optimizer.flow.study import TuneRequest

GROUP = "measure"
KEPT = frozenset({"target", "resume", "as_json", "dry_run", "pause_s"})
"""What may stand beside --resume."""


def _knobs(_c: click.Context, _p: click.Parameter, value: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """`name=a,b,c`; an empty value leaves the setting to the engine. JSON values are split at `|` instead."""
    found: dict[str, tuple[str, ...]] = {}
    for text in value:
        name, equals, rest = text.partition("=")
        if not equals or not name:
            raise UsageError(f"`--knob {text}` is not NAME=A,B", hint=("--knob max-num-seqs=32,64,128",))
        found[name] = tuple(part.strip() for part in rest.split("|" if "{" in rest or "|" in rest else ","))
    return found


def _levels(_c: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...]:
    if value is None:
        return ()
    try:
        found = tuple(float(part) for part in value.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < level < float("inf") for level in found):
        raise UsageError(f"`{value}` is not a list of loads", hint=("for example --concurrency 1,16,64",))
    return tuple(options.plausible(level, param.opts[0]) for level in found)


def _names(_c: click.Context, _p: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if value else ()


def _shapes(_c: click.Context, _p: click.Parameter, value: tuple[str, ...]) -> "tuple[Shape, ...]":
    """`name=PROMPT/OUTPUT`, two distributions of lengths."""
    from model_optimizer.core import lengths
    from model_optimizer.core.study import Shape

    found: dict[str, Shape] = {}
    for text in value:
        name, equals, rest = text.partition("=")
        prompt, slash, output = rest.rpartition("/")
        if not equals or not name or not slash or not prompt:
            raise UsageError(
                f"`--workload {text}` is not NAME=PROMPT/OUTPUT",
                hint=("--workload chat=uniform:512,1536/uniform:64,192 --workload mixed=choice:10,2000/128",),
            )
        if name in found:
            raise UsageError(f"two workloads are called `{name}`")
        found[name] = Shape(
            name=name, prompt_tokens=lengths.parse(prompt), output_tokens=lengths.parse(output)
        )
    if len(found) == 1:
        raise UsageError(
            "one workload needs no name", hint=("use --prompt-tokens and --output-tokens, or name another",)
        )
    return tuple(found.values())


_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(short_help="Find the best settings on this machine under the SLO.")
@click.argument("target", required=False)
@click.option("--engine", help="The engine, where TARGET is a model.")
@click.option("--scheme", help="The number format, where TARGET is a model.")
@click.option("--prompt-tokens", type=options.LengthsType(), help="N, or a distribution of prompt lengths.")
@click.option("--output-tokens", type=options.LengthsType(), help="N, or a distribution of output lengths.")
@click.option(
    "--workload",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="NAME=PROMPT/OUTPUT",
    help="One of several kinds of traffic, all of which the winner must be good at.",
)
@click.option(
    "--over",
    type=click.Choice(["mean", "worst"]),
    default="mean",
    show_default=True,
    help="Of several workloads: their geometric mean, or the worst ratio to the default.",
)
@click.option("--concurrency", callback=_levels, metavar="N,N", help="Levels of a closed loop.")
@click.option("--qps", "--rate", callback=_levels, metavar="R,R", help="Levels of an open loop.")
@options.slo
@click.option(
    "--objective",
    type=click.Choice(["goodput", "energy", "cost"]),
    default="goodput",
    show_default=True,
    help="What the winner is best at, within the SLO.",
)
@click.option("--price-per-hour", type=options.PositiveFloat(), help="Of one GPU; for the cost of a token.")
@click.option("--trials", type=options.Whole(1), default=12, show_default=True, help="Starts of the search.")
@click.option("--time", "limit_s", type=options.SecondsType(), help="No new trial after so long.")
@click.option(
    "--for",
    "seconds",
    type=options.SecondsType(),
    default="6s",
    show_default=True,
    help="Each load: long enough for several of the longest answers one after the other.",
)
@click.option(
    "--probe",
    "probe_s",
    type=options.SecondsType(),
    default="2.5s",
    show_default=True,
    help="The short load that ends a hopeless trial; 0s is none.",
)
@click.option(
    "--finalists", type=options.Whole(0), default=2, show_default=True, help="Compared with the default."
)
@click.option(
    "--repeats",
    type=options.Whole(0),
    default=3,
    show_default=True,
    help="Runs of each in the end; from 4 on pairs of one round decide where servers stand by each other.",
)
@click.option(
    "--second-look",
    type=click.Choice(["auto", "resident", "restart"]),
    default="auto",
    show_default=True,
    help="One server for each arm, side by side (resident), or one for each run.",
)
@click.option(
    "--together", type=options.Whole(1), default=1, show_default=True, help="Trials started side by side."
)
@click.option(
    "--start-together",
    type=options.Whole(1),
    default=4,
    show_default=True,
    help="Servers that start at the same time.",
)
@click.option("--pause-after", "pause_s", type=options.SecondsType(), help="Begin nothing new after so long.")
@click.option("--ablate", type=options.Whole(0), default=2, show_default=True, help="Settings put back.")
@click.option("--knob", "values", multiple=True, callback=_knobs, metavar="NAME=A,B", help="Values to try.")
@click.option("--only", callback=_names, metavar="A,B", help="Only these knobs, and those under --knob.")
@click.option("--fix", "fixed", callback=_names, metavar="A,B", help="Knobs that are left alone.")
@options.pairs("--set", "settings", options.PairType(example="max-num-seqs=64"), "Change the default.")
@click.option("--storage", metavar="URL", help="A database for the trials, in place of a file in the folder.")
@click.option("--python", type=click.Path(dir_okay=False), help="The interpreter that runs the engine.")
@click.option(
    "--start-limit",
    "start_limit_s",
    type=options.SecondsType(),
    default="10m",
    show_default=True,
    help="A server that is not ready after so long has failed.",
)
@click.option("--workers", metavar="ADDRESS", help="A Ray cluster: ray://HOST:PORT, auto, or local.")
@click.option("--worker-cores", type=options.PositiveFloat(), default=1.0, help="Cores of one trial there.")
@click.option(
    "--earlier",
    metavar="DIR",
    default="studies",
    show_default=True,
    help="Earlier studies of the same model, GPU and engine lead the search.",
)
@click.option("--seed", type=int, default=0, help="Of prompts, the order of runs and the search.")
@click.option("--out", type=_FOLDER, help="Folder of the study. Default: a new one below `studies`.")
@click.option("--resume", type=_FOLDER, metavar="STUDY", help="Go on with a study that was ended.")
@click.option("--ab", "other", metavar="B", help="Compare TARGET with the plan B, in turn; search nothing.")
@click.option("--python-b", type=click.Path(dir_okay=False), help="The interpreter of B, with --ab.")
@click.option("--dry-run", is_flag=True, help="Show the space and what is predicted; start nothing.")
@options.as_json
def COMMAND(target: str | None, **given: Any) -> None:
    """Search the settings of TARGET (a plan.json, a run, a folder or a model) with few starts of the engine.

    The default plan is measured first. Memory arithmetic removes what cannot start, the estimate says what
    to try next, and what was measured corrects it. Finalists run against the default in turn, and each
    setting of the winner is put back once to see what it gave. Exits with 0 whether or not something
    better was found: the answer says which.
    """
    from dataclasses import replace

    from model_optimizer import api
    from model_optimizer.cli import render_tune
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import codec

    if given["resume"]:
        _refuse_with_resume(target)
    request = None if given["resume"] else _request(target, given)
    reporter = Reporter()
    try:
        if given["other"] and request is not None:
            second = replace(request, target=given["other"], python=given["python_b"] or request.python)
            many = {"repeats": request.repeats, "most": max(request.ablate, 1) * 2}
            place, pair = api.side_by_side(request, second, given["out"], progress=reporter, **many)
            reporter.close()
            click.echo(
                codec.dumps(pair) if given["as_json"] else render_tune.pair_text(pair, place), nl=False
            )
            raise click.exceptions.Exit(int(pair.duel.decision == "worse"))
        if given["dry_run"] and request is not None:
            prepared = api.tuning(request, given["out"], progress=reporter)
            click.echo(render_tune.space_text(prepared), nl=False)
            return
        folder, study = api.tune(
            request, given["resume"] or given["out"], progress=reporter, pause_s=given["pause_s"]
        )
    except KeyboardInterrupt as stop:
        reporter.close()
        for note in getattr(stop, "__notes__", ()):
            click.echo(note, err=True)
        raise
    finally:
        reporter.close()
    click.echo(codec.dumps(study) if given["as_json"] else render_tune.study_text(study, folder), nl=False)


def _request(target: str | None, given: dict[str, Any]) -> "TuneRequest":
    from dataclasses import fields

    from model_optimizer.core import Slo, plugins
    from model_optimizer.flow.study import TuneRequest

    if target is None:
        raise UsageError(
            "nothing to tune was named", hint=("mopt tune plan.json", "mopt tune --resume STUDY")
        )
    if given["qps"] and given["concurrency"]:
        raise UsageError("a load has rates (--qps) or concurrencies, not both")
    if given["seconds"] <= 0 or given["probe_s"] < 0:
        raise UsageError("--for must be longer than nothing", hint=("--probe 0s is no probe",))
    slo = Slo(**{name: given[name] for name in ("ttft_ms", "tpot_ms", "e2e_ms", "percentile")})
    named = {n: plugins.canonical(given[n]) if given[n] else None for n in ("engine", "scheme")}
    taken = {f.name for f in fields(TuneRequest)} - {"target", "slo", "levels", "open_loop", *named}
    return TuneRequest(
        target=target,
        slo=slo,
        levels=given["qps"] or given["concurrency"],
        open_loop=bool(given["qps"]),
        **named,
        **{name: given[name] for name in taken},
    )


def _refuse_with_resume(target: str | None) -> None:
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    named = [n for n in context.params if n not in KEPT and context.get_parameter_source(n) == source]
    if target or named:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in named) or "a TARGET"
        raise UsageError(
            f"{words} and --resume exclude each other", hint=("a study keeps what it was asked",)
        )

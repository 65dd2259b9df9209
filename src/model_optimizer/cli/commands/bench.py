"""`mopt bench`: how fast a running server answers, at one load or several."""

import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from model_optimizer.cli import options
from model_optimizer.core import Lengths, MoptError, UsageError
from model_optimizer.core.workload import Arrivals

if TYPE_CHECKING:
    from model_optimizer.bench.options import BenchOptions
    from model_optimizer.bench.target import Target
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.core import Measurement, Workload

GROUP = "measure"

_APIS = ("completions", "chat", "embeddings", "rerank", "score", "infer")
_ARRIVALS = [name for name in get_args(Arrivals) if name not in ("closed", "trace")]
_TASKS = {"embeddings": "embed", "rerank": "rerank", "score": "rerank", "infer": "vision"}


class Levels(click.ParamType[Any]):
    """One number above zero, or several with commas between."""

    name = "N[,N...]"

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def convert(
        self, value: str | tuple[float, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        option = param.opts[0] if param else "value"
        try:
            numbers = tuple(int(part) if self._whole else float(part) for part in value.split(","))
        except ValueError:
            numbers = ()
        if not numbers or any(not number > 0 for number in numbers):
            what = "whole numbers" if self._whole else "numbers"
            raise UsageError(f"{option} takes {what} above zero, not `{value}`")
        if math.inf in numbers and len(numbers) > 1:
            raise UsageError(f"{option}: a burst (`inf`) stands alone")
        return tuple(options.plausible(number, option) for number in numbers)


class Mix(click.ParamType[Any]):
    """Names with their shares of the load: `base=3,adapter-a=1`."""

    name = "NAME=SHARE,..."

    def convert(
        self, value: str | dict[str, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, float]:
        if isinstance(value, dict):
            return value
        found: dict[str, float] = {}
        for part in value.split(","):
            name, _, share = part.rpartition("=")
            try:
                found[name.strip() or share.strip()] = float(share) if name else 1.0
            except ValueError:
                found = {"": 0.0}
                break
        if any(not name or not share > 0 or math.isinf(share) for name, share in found.items()):
            raise UsageError(f"`{value}` is not a mix", hint=("write for example base=3,adapter-a=1",))
        return found


class Share(click.ParamType[Any]):
    """`3%` or `0.03`."""

    name = "SHARE"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = 0.0
        if not 0 < number < 1:
            raise UsageError(f"`{value}` is not a share", hint=("write for example 3%",))
        return number


_FILE = click.Path(path_type=Path, dir_okay=False)

_whom = options.together(
    click.option("--model", help="Name of the model; without it the server's first one."),
    click.option("--api", type=click.Choice(_APIS), help="Interface; without it, the first that answers."),
    click.option("--path", help="Path of the interface, where it is not the usual one."),
    click.option("--stream/--no-stream", default=True, help="Answers token by token.  [default: stream]"),
    click.option("--api-key-env", metavar="NAME", help="Variable with the key.  [default: OPENAI_API_KEY]"),
    click.option("--mix", type=Mix(), help="Models or LoRA adapters, each with its share of the load."),
)
_load = options.together(
    click.option("--concurrency", type=Levels(whole=True), help="Requests in flight, in a closed loop."),
    click.option("--qps", "--rate", type=Levels(whole=False), help="Requests per second; `inf` is a burst."),
    click.option("--arrivals", type=click.Choice(_ARRIVALS), help="With a rate.  [default: poisson]"),
    click.option("--burstiness", type=options.PositiveFloat(), help="Of gamma arrivals; below 1 clusters."),
    click.option("--ramp-to", type=options.PositiveFloat(), help="The rate goes from --qps to this."),
    click.option("--ramp-time", type=options.SecondsType(), help="Within this time.  [default: --for]"),
    click.option("--trace", type=_FILE, help="Replay arrivals: Mooncake, BurstGPT, Azure, or own JSONL."),
    click.option("--speed", type=options.PositiveFloat(), help="Of the replay; 2 is twice as fast."),
    click.option("--turns", type=options.LengthsType(), help="Requests of a session, each with all before."),
    click.option("--think-time", type=options.SecondsType(), help="Mean pause before the next turn."),
    click.option("--requests", type=options.Whole(1), help="How many requests at each level."),
    click.option("--for", "duration_s", type=options.SecondsType(), help="How long at each level: 30s, 10m."),
    click.option("--warmup", type=options.Whole(0), help="Requests before the window."),
    click.option(
        "--timeout", "timeout_s", type=options.SecondsType(), default="300s", help="Of one request."
    ),
    click.option("--seed", type=int, help="Ask the same again.  [default: lengths of 0, new contents]"),
)
_prompts = options.together(
    click.option("--prompt-tokens", type=options.LengthsType(), help="N, or a distribution.  [default: 128]"),
    click.option("--output-tokens", type=options.LengthsType(), help="N, or a distribution.  [default: 32]"),
    click.option("--shared-prefix", type=options.Whole(0), default=0, help="Tokens that all share."),
    click.option("--prompts", type=_FILE, help="JSONL file of real prompts."),
    click.option("--image", "images", multiple=True, help="WIDTHxHEIGHT or a file; for each of a request."),
    click.option("--tokenizer", type=click.Path(), help="tokenizer.json or its folder, for exact lengths."),
    click.option("--vocab-size", type=options.Whole(64), help="Draw token ids, without a tokenizer."),
    click.option("--ignore-eos/--no-ignore-eos", default=True, help="Go on to that length.  [default: yes]"),
)
_search = options.together(
    click.option("--find-max", is_flag=True, help="Search for the highest level that meets the limits."),
    click.option("--sweep", is_flag=True, help="Double the level until that gains nothing."),
    click.option("--up-to", type=options.PositiveFloat(), help="The highest level that is tried."),
    click.option("--until-ci", type=Share(), help="Repeat each level until its means are known to e.g. 3%."),
    click.option("--processes", type=click.IntRange(1, 64), help="Of the client.  [default: as needed]"),
)


@click.command(short_help="How fast does a running server answer?")
@click.argument("url", metavar="URL")
@_whom
@_load
@_prompts
@options.slo
@_search
@click.option("--calibrate/--no-calibrate", default=True, help="First see what this client can do (1 s).")
@click.option("--pid", type=options.Whole(1), help="Process of the server, to measure its memory.")
@click.option("--telemetry/--no-telemetry", default=True, help="Record GPU, host, engine.  [default: yes]")
@click.option("--out", type=_FILE, help="Write the measurement to a file.")
@click.option("--strict", is_flag=True, help="Exit with 1 when the client could not keep up, too.")
@options.as_json
def COMMAND(
    url: str, out: Path | None, as_json: bool, pid: int | None, seed: int | None, strict: bool, **given: Any
) -> None:
    """Load a server that speaks the OpenAI interface, and say how it did.

    Nothing is installed on the server and no request is tried again. Times are taken when bytes arrive;
    the definitions of all numbers are in the JSON. Ends with 1 when a GPU failed meanwhile, when --find-max
    finds no level that meets the limits, and with --strict when the client could not keep up.

    \b
    mopt bench http://127.0.0.1:8000 --concurrency 1,8,32 --requests 256
    mopt bench http://127.0.0.1:8000 --rate 20 --arrivals poisson --for 30s --ttft-ms 200
    mopt bench http://127.0.0.1:8000 --find-max --ttft-ms 200 --percentile 95
    mopt bench http://127.0.0.1:8000 --trace mooncake.jsonl --speed 2
    """
    from contextlib import nullcontext

    from model_optimizer.bench.run import measure
    from model_optimizer.bench.watched import Recording
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render import error_text
    from model_optimizer.cli.render_bench import measurement_text
    from model_optimizer.cli.render_telemetry import telemetry_text
    from model_optimizer.core import Slo, codec
    from model_optimizer.system import telemetry

    target, workload, how = _target(url, given), _workload(given), _options(given, seed)
    slo = Slo(**{name: given[name] for name in ("ttft_ms", "tpot_ms", "e2e_ms", "percentile")})
    reporter = Reporter()
    try:
        recording = Recording(target, pid=pid) if given["telemetry"] else None
        with recording or nullcontext():
            found = measure(
                target,
                workload,
                slo,
                progress=reporter,
                sample_memory=telemetry.memory(pid) if pid else None,
                energy=telemetry.energy(),
                seed=seed or 0,
                options=how,
                observe=recording.seen if recording else None,
                calibrate=partial(_ceiling, target, workload, reporter) if given["calibrate"] else None,
            )
        found = recording.complete(found) if recording else found
    finally:
        reporter.close()
    unwritten = _written(out, codec.dumps(found)) if out else None
    text = codec.dumps(found) if as_json else measurement_text(found) + telemetry_text(found)
    click.echo(text, nl=False)
    if unwritten is not None:  # what was measured is on the screen at least
        click.echo(error_text(unwritten), nl=False, err=True)
        raise click.exceptions.Exit(unwritten.exit_code)
    raise click.exceptions.Exit(130 if found.interrupted else 1 if _is_no(found, strict) else 0)


def _written(out: Path, text: str) -> MoptError | None:
    """Write the measurement; the error when that is not possible (a full disk)."""
    from model_optimizer.system import files

    try:
        files.write_atomic(out, text)
    except MoptError as error:
        return error
    click.echo(f"written to {out}", err=True)
    return None


def _is_no(found: "Measurement", strict: bool) -> bool:
    nothing = found.capacity is not None and found.capacity.best is None
    return bool(found.invalid) or nothing or (strict and found.client.verdict == "invalid")


def _ceiling(target: "Target", workload: "Workload", progress: "Reporter") -> float:
    """Start a server that does no work, as a process of its own, and see what this client can do."""
    import sys

    from model_optimizer.bench import calibrate
    from model_optimizer.core import HostError
    from model_optimizer.system import processes

    port = processes.free_port()
    module = ["-m", "model_optimizer.testing.null_server", "--port", port, "--pace-ms", calibrate.PACE_MS]
    server = processes.start([sys.executable, *map(str, module)], log=None)
    try:
        until = time.monotonic() + 10
        while True:
            try:
                url = f"http://127.0.0.1:{port}"
                return calibrate.ceiling(url, workload, stream=target.stream, progress=progress)
            except HostError:  # it does not listen yet
                if server.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.1)
    finally:
        server.stop(grace_s=1.0)


def _target(url: str, given: dict[str, Any]) -> "Target":
    from model_optimizer.bench.target import Target

    names = ("model", "api", "path", "stream", "tokenizer", "vocab_size", "api_key_env")
    return Target(url=url, **{name: given[name] for name in names})


def _workload(given: dict[str, Any]) -> "Workload":
    from model_optimizer.core import Workload

    qps, concurrency, arrivals = given["qps"], given["concurrency"], given["arrivals"]
    if qps and concurrency:
        raise UsageError("a load has a rate (--qps) or a concurrency, not both")
    if given["trace"] and (qps or concurrency or arrivals or given["duration_s"]):
        hint = ("leave out the rate and the time", "--speed 2 replays it twice as fast")
        raise UsageError("a trace says itself when its requests come", hint=hint)
    if given["speed"] and not given["trace"]:
        raise UsageError("--speed is that of a --trace")
    if given["ramp_to"] and (not qps or len(qps) > 1 or math.isinf(qps[0])):
        raise UsageError("a ramp needs the rate that it starts from", hint=("add --qps N",))
    if given["think_time"] and not given["turns"]:
        raise UsageError("a think time is between the turns of a session", hint=("add --turns N",))
    if given["mix"] and given["model"]:
        raise UsageError("name models with --model or with --mix, not with both")
    if given["burstiness"] is not None:
        arrivals = arrivals or "gamma"
        if arrivals != "gamma":
            raise UsageError("--burstiness is the shape of --arrivals gamma")
    if arrivals and not qps and arrivals != "burst":
        raise UsageError(f"--arrivals {arrivals} needs a rate", hint=("add --qps N",))
    if given["requests"] and given["duration_s"]:
        raise UsageError("a level ends after a number of requests or a time (--for), not both")
    if given["duration_s"] == 0:
        raise UsageError("--for needs a time above zero")
    if qps == (math.inf,):
        arrivals = "burst"
    return Workload(
        task=_TASKS.get(given["api"], "generate"),  # pyright: ignore[reportArgumentType]
        arrivals=arrivals or ("poisson" if qps else "closed"),
        qps=qps[0] if qps else None,
        burstiness=given["burstiness"] or 1.0,
        concurrency=concurrency[0] if concurrency else None if qps else 1,
        requests=given["requests"],
        prompt_tokens=given["prompt_tokens"] or Lengths.fixed(128),
        output_tokens=given["output_tokens"] or Lengths.fixed(32),
        shared_prefix=given["shared_prefix"],
        ramp_to_qps=given["ramp_to"],
        ramp_s=given["ramp_time"],
        turns=given["turns"],
        think_time_s=given["think_time"] or 0.0,
        models=given["mix"] or {},
        images=given["images"],
    )


def _options(given: dict[str, Any], seed: int | None = None) -> "BenchOptions":
    from model_optimizer.bench.options import BenchOptions

    if given["find_max"] and given["sweep"]:
        raise UsageError("a search is for the most (--find-max) or a sweep, not both")
    if given["up_to"] and not (given["find_max"] or given["sweep"]):
        raise UsageError("--up-to is the end of --find-max or --sweep")
    return BenchOptions(
        contents=time.time_ns() if seed is None else None,  # a server may still hold those of the last run
        levels=given["qps"] or given["concurrency"] or (),
        duration_s=given["duration_s"],
        warmup=given["warmup"],
        timeout_s=given["timeout_s"],
        ignore_eos=given["ignore_eos"],
        prompts=str(given["prompts"]) if given["prompts"] else None,
        trace=str(given["trace"]) if given["trace"] else None,
        speed=given["speed"] or 1.0,
        processes=given["processes"],
        until=given["until_ci"],
        search="max" if given["find_max"] else "sweep" if given["sweep"] else None,
        search_limit=given["up_to"],
    )

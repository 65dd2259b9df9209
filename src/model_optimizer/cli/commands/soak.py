"""`mopt soak`: does a running server hold for hours or days?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_optimizer.cli import options
from model_optimizer.core import Lengths, UsageError

if TYPE_CHECKING:
    from model_optimizer.bench.soak import SoakWindow

GROUP = "measure"

_MOST_PER_S = 1000.0
_BAD = frozenset({"leaks", "degrades", "unstable", "invalid"})
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(short_help="Does a running server hold for hours or days?")
@click.argument("url", metavar="URL")
@click.option("--for", "for_s", type=options.SecondsType(), default="1h", help="How long: 10m, 72h.  [1h]")
@click.option("--window", "window_s", type=options.SecondsType(), default="60s", help="Of statistics.  [60s]")
@click.option("--qps", "--rate", type=options.PositiveFloat(), help="Requests per second.  [default: 1]")
@click.option("--concurrency", type=click.IntRange(1, 4096), help="Instead: requests in flight.")
@click.option("--prompt-tokens", type=options.LengthsType(), help="N, or a distribution.  [default: 128]")
@click.option("--output-tokens", type=options.LengthsType(), help="N, or a distribution.  [default: 32]")
@click.option("--model", help="Name of the model; without it the server's first one.")
@click.option("--api", type=click.Choice(("completions", "chat", "embeddings")), help="Interface.")
@click.option("--tokenizer", type=click.Path(), help="tokenizer.json or its folder, for exact lengths.")
@click.option("--vocab-size", type=options.Whole(64), help="Draw token ids, without a tokenizer.")
@click.option("--api-key-env", metavar="NAME", help="Variable with the key.")
@click.option(
    "--timeout", "timeout_s", type=options.SecondsType(), default="60s", help="Of one request.  [60s]"
)
@click.option("--error-rate", type=options.Real(0, 1), default=0.001, help="Accepted.  [default: 0.001]")
@click.option("--pid", type=options.Whole(1), help="Process of the server, where it runs here.")
@click.option("--out", type=_FOLDER, default=Path("soak"), help="Folder of the journal.  [default: ./soak]")
@click.option("--resume", is_flag=True, help="Go on with the soak in that folder.")
@click.option("--status", is_flag=True, help="Only say what the soak in that folder has found until now.")
@click.option("--strict", is_flag=True, help="Exit with 1 when the answer is undecided, too.")
@options.as_json
def COMMAND(url: str, out: Path, as_json: bool, status: bool, strict: bool, **given: Any) -> None:
    """Load a server at a bounded rate and watch what grows: memory, open files, KV cache, latency.

    Every window is on the disk before the next one begins. A server that cannot be reached is waited for.
    It ends by itself after --for, with 1 when something leaks, slows down or fails more than allowed.

    \b
    mopt soak http://127.0.0.1:8000 --for 72h --rate 2 --pid 4711 --out runs/soak
    mopt soak http://127.0.0.1:8000 --for 72h --rate 2 --pid 4711 --out runs/soak --resume
    """
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_soak import soak_text, window_text
    from model_optimizer.core import codec
    from model_optimizer.flow import soak as flow

    if status:
        found = flow.answer(out)
    else:
        reporter = Reporter()

        def each(window: "SoakWindow") -> None:
            reporter.close()
            click.echo(window_text(window), err=True)

        try:
            found = _run(url, out, reporter, each, given)
        finally:
            reporter.close()
    click.echo(codec.dumps(found) if as_json else soak_text(found), nl=False)
    no = found.outcome in _BAD or (strict and found.outcome == "undecided")
    raise click.exceptions.Exit(130 if not found.finished and not status and not no else int(no))


def _run(url: str, out: Path, reporter: Any, each: Any, given: dict[str, Any]) -> Any:
    from model_optimizer.bench.options import BenchOptions
    from model_optimizer.bench.target import Target
    from model_optimizer.core import Workload
    from model_optimizer.flow.soak import run_soak

    qps, concurrency = given["qps"], given["concurrency"]
    if qps and concurrency:
        raise UsageError("a load has a rate (--qps) or a concurrency, not both")
    if (qps or 0) > _MOST_PER_S:
        raise UsageError(f"a soak asks {_MOST_PER_S:g} requests a second at most")
    target = Target(
        url=url,
        **{n: given[n] for n in ("model", "api", "tokenizer", "vocab_size", "api_key_env")},
    )
    workload = Workload(
        task="embed" if given["api"] == "embeddings" else "generate",
        arrivals="closed" if concurrency else "poisson",
        qps=None if concurrency else qps or 1.0,
        concurrency=concurrency,
        prompt_tokens=given["prompt_tokens"] or Lengths.fixed(128),
        output_tokens=given["output_tokens"] or Lengths.fixed(32),
    )
    return run_soak(
        target,
        workload,
        for_s=given["for_s"],
        window_s=min(given["window_s"], given["for_s"]),
        folder=out,
        error_rate=given["error_rate"],
        pid=given["pid"],
        resume=given["resume"],
        options=BenchOptions(timeout_s=given["timeout_s"]),
        progress=reporter,
        each=each,
    )

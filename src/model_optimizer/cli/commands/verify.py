"""`mopt verify`: is a candidate still the model that it was made from?"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import options, verify_inside, verify_options

if TYPE_CHECKING:
    from model_optimizer.flow.verify_inside import Inside

GROUP = "make"
MODEL_TEXTS = 600


@click.command(short_help="Is it right? Compare a candidate with its original.")
@click.argument("candidate", metavar="X")
@click.option(
    "--against",
    "reference",
    metavar="R",
    help="The checkpoint that X was made from; it runs in PyTorch in float32.",
)
@click.option("--layer", help="What is looked at: format, model, quality. Default: format, then model.")
@click.option(
    "--scheme",
    metavar="NAME",
    help="The number format whose limits hold; default: what X says, for a URL that of R or of `mopt serve`.",
)
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your own texts, one a line, or JSON lines with text, prompt, or query and document.",
)
@click.option(
    "--max-texts",
    type=click.IntRange(min=2),
    default=MODEL_TEXTS,
    show_default=True,
    help="Where an undecided verdict stops to draw more.",
)
@click.option(
    "--run",
    type=click.Path(path_type=Path, file_okay=False),
    help="A run folder: X is the name of one of its candidates, and the verdict is written there.",
)
@verify_options.by_layer
@verify_inside.inside
@click.option("--strict", is_flag=True, help="Exit with 1 when the verdict is undecided.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the verdict to a file."
)
@options.as_json
def COMMAND(
    candidate: str,
    reference: str | None,
    layer: str | None,
    scheme: str | None,
    texts: Path | None,
    max_texts: int,
    run: Path | None,
    engine: str | None,
    gpu: str | None,
    tensor_parallel: int,
    gate: tuple[tuple[str, float], ...],
    tasks: Path | None,
    max_tokens: int,
    free_tokens: int,
    layers: bool,
    sensitivity: bool,
    inside: "Inside",
    strict: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say whether X is right, layer by layer.

    X is a folder of `mopt convert` or `mopt quantize`, a model.onnx, a checkpoint, or the URL of a server on
    this machine that gives log-probabilities of a prompt, as vLLM does, or vectors.

    \b
    format   a checkpoint as the engine will read it: headers, scales, description; needs no R
    operators  every step from R to an ONNX graph, down to the first operator that is wrong, cut out to run
    model    X and R on the same inputs; a checkpoint runs in PyTorch in the number format of --scheme
    service  a URL: answers at once as alone, no mixed streams, errors, limits, drift; needs no R
    quality  the same through the engine that will serve X, by place in the context, with tasks or retrieval

    A number passes when its whole 95 % interval reaches the limit, fails when all of it lies below, and is
    undecided between; then more texts are drawn. Exits with 0 on pass, 1 on fail, and 0 on undecided (1 with
    --strict).
    """
    from model_optimizer import api
    from model_optimizer.cli.progress import Reporter
    from model_optimizer.cli.render_verify import verdict_text
    from model_optimizer.core import codec
    from model_optimizer.flow.quality import Wishes

    wishes = Wishes(
        gate=dict(gate),
        tasks=tasks,
        engine=engine,
        gpu=gpu,
        tensor_parallel=tensor_parallel,
        max_tokens=max_tokens,
        free_tokens=free_tokens,
        layers=layers,
        sensitivity=sensitivity,
    )
    verdict = None
    for part in _layers(candidate, reference, layer, run):
        reporter = Reporter()
        try:
            found = api.verify(
                candidate,
                reference,
                layer=part,
                scheme=scheme,
                texts=texts,
                max_texts=max_texts,
                run=run,
                progress=reporter,
                wishes=wishes,
                inside=inside,
            )
        finally:
            reporter.close()
        if verdict is not None:
            click.echo(verdict_text(verdict), err=as_json)
        verdict = found
        if verdict.outcome == "fail":
            break
    assert verdict is not None
    if out:
        api.save(verdict, out)
    click.echo(codec.dumps(verdict) if as_json else verdict_text(verdict), nl=False)
    no = verdict.outcome == "fail" or (strict and verdict.outcome == "undecided")
    raise click.exceptions.Exit(int(no))


def _layers(candidate: str, reference: str | None, layer: str | None, run: Path | None) -> tuple[str, ...]:
    """The layers to look at. Only a checkpoint has a format to look at; without R nothing can be compared."""
    if layer is not None:
        return (layer,)
    folder = Path(candidate)
    if run is not None or not folder.is_dir() or not (folder / "config.json").is_file():
        return ("model",)
    if any(folder.glob("*.onnx")) or any(folder.glob("*.engine")):
        return ("model",)
    return ("format", "model") if reference else ("format",)

"""`mopt quantize`: a model with fewer bits."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import making, options

if TYPE_CHECKING:
    from model_optimizer.core import Artifact, Lengths, Verdict

GROUP = "make"
NEARLY_ALL = 0.95
"""Share of the workload's requests that calibration samples are as long as."""


@click.command(short_help="Make a model with fewer bits.")
@click.argument("model")
@click.option("--scheme", required=True, help="The number format, for example fp8, awq-int4 or int8.")
@click.option("--to", help="The format or engine to make it for, such as onnx; default: the fewest steps.")
@click.option("--engine", help="Check that this engine runs it, for example vllm==0.25.1.")
@click.option("--gpu", help="Check that this GPU runs it, for example 'l40s'.")
@click.option("--weight-only", is_flag=True, help="Also when the GPU would compute it in 16 bits.")
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your own texts: JSONL with text, messages or prompt, or plain text. Default: built-in ones.",
)
@click.option("--samples", type=click.IntRange(min=1), help="How many samples to calibrate with.")
@click.option("--calibration-length", type=click.IntRange(min=8), help="Tokens of a sample, at most.")
@click.option("--prompt-tokens", type=options.LengthsType(), help="Your load: samples get its lengths.")
@click.option("--output-tokens", type=options.LengthsType(), help="Your load: samples get its lengths.")
@click.option("--symmetric/--asymmetric", default=None, help="4-bit integers: without or with zero points.")
@click.option(
    "--exclude", multiple=True, metavar="LAYER", help="A layer that keeps its precision, or `*.k_proj`."
)
@click.option("--search-steps", type=click.IntRange(min=3), help="Of AWQ: strengths tried; default: 20.")
@click.option("--bits", type=click.FloatRange(4.5, 16), help="Of `mixed`: bits a weight, on average.")
@click.option(
    "--verdict",
    "verdict_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write what the linter found to a file.",
)
@making.choices
def COMMAND(
    model: str,
    scheme: str,
    to: str | None,
    engine: str | None,
    gpu: str | None,
    weight_only: bool,
    calibration: Path | None,
    samples: int | None,
    calibration_length: int | None,
    prompt_tokens: "Lengths | None",
    output_tokens: "Lengths | None",
    symmetric: bool | None,
    exclude: tuple[str, ...],
    search_steps: int | None,
    bits: float | None,
    verdict_file: Path | None,
    out: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Quantize MODEL (a folder or a hub id) to a scheme, with the field's own tools.

    What it takes in memory, disk and time is said before work begins; what cannot be made, or could not run
    on the engine or GPU that you name, is refused then. The head, routers of experts and tables keep their
    precision, and the reason is printed. Some schemes look at calibration texts: take your own.

    A checkpoint that was made is read as the engine will read it (layer format of `mopt verify`); exits with
    1 when that finds a fault.

    A job that was interrupted or killed goes on behind the last finished layer or file of weights when the
    same command is given again.
    """
    from model_optimizer import api
    from model_optimizer.quantize.run import Asked, Target, Wanted

    asked = Asked(
        wanted=Wanted(
            path=calibration,
            count=samples,
            length=calibration_length,
            workload_tokens=_workload_tokens(prompt_tokens, output_tokens),
        ),
        target=Target(gpu=gpu, engine=engine, weight_only=weight_only),
        symmetric=symmetric,
        exclude=exclude,
        search_steps=search_steps,
        bits=bits,
    )
    found = api.plan_quantization(model, scheme=scheme, to=to, asked=asked)
    making.carry_out(
        found.work,
        out,
        dry_run=dry_run,
        as_json=as_json,
        make=lambda place, progress: api.quantize(found, place, progress=progress),
        lint=lambda made: _lint(made, engine, gpu, verdict_file),
    )


def _lint(made: "Artifact", engine: str | None, gpu: str | None, file: Path | None) -> "Verdict | None":
    """None for what is no checkpoint."""
    from model_optimizer import api
    from model_optimizer.flow.format import QUANTIZED
    from model_optimizer.flow.quality import Wishes

    if made.format not in QUANTIZED:
        return None
    verdict = api.verify(
        made.path,
        layer="format",
        scheme=made.scheme,
        wishes=Wishes(engine=engine, gpu=gpu),
        progress=lambda _text, _share=None: None,
    )
    if file:
        api.save(verdict, file)
    return verdict


def _workload_tokens(prompt: "Lengths | None", output: "Lengths | None") -> int | None:
    found = [lengths.quantile(NEARLY_ALL) for lengths in (prompt, output) if lengths]
    return sum(found) or None

"""`mopt convert`: a model in another format, down to an engine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import making, options

if TYPE_CHECKING:
    from model_optimizer.convert.run import Wish
    from model_optimizer.core import Lengths

GROUP = "make"


def capabilities(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """`8.9`, or several at once as `8.6,8.9,12.0`."""
    import re

    from model_optimizer.core import UsageError

    found = [part.strip() for text in value for part in text.split(",") if part.strip()]
    for text in found:
        if not re.fullmatch(r"\d{1,2}\.\d", text):
            raise UsageError(
                f"`{text}` is no compute capability", hint=("write it as 8.9; `mopt facts` lists GPUs",)
            )
    return tuple(dict.fromkeys(found))


@click.command(short_help="Make a model in another format, or for an engine.")
@click.argument("model")
@click.option(
    "--to",
    required=True,
    metavar="FORMAT|ENGINE",
    help="onnx, onnxruntime, tensorrt, tensorrt-rtx, or a format.",
)
@click.option(
    "--scheme", help="The number format; left out, that of the model, fp16 for engines, else 32 bits."
)
@click.option(
    "--compute-capability", "targets", multiple=True, callback=capabilities, metavar="X.Y",
    help="GPUs of an engine of TensorRT for RTX; several by commas. Left out: all that take the scheme.",
)  # fmt: skip
@click.option(
    "--prompt-tokens", type=options.LengthsType(), help="Lengths that will be asked: N, or a distribution."
)
@click.option("--concurrency", type=click.IntRange(min=1), help="Most requests that are computed at once.")
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME=MIN:OPT:MAX,...",
    help="Sizes that an engine is built for, instead of those that follow from the lengths; may be repeated.",
)  # fmt: skip
@click.option(
    "--calibration", type=click.Path(path_type=Path), metavar="FILE|FOLDER",
    help="Texts (one a line, or JSON lines), or a folder of .npy images, to quantize and compare with.",
)  # fmt: skip
@click.option("--workspace", metavar="BYTES", help="Memory that the builder may use, for example 4GiB.")
@click.option("--weight-streaming", is_flag=True, help="Let the engine keep weights in host memory.")
@click.option(
    "--strip-weights", is_flag=True, help="Leave the weights out; they are put back when it is loaded."
)
@click.option("--version-compatible", is_flag=True, help="TensorRT: let later versions run the engine.")
@click.option(
    "--hardware-compatible", is_flag=True, help="TensorRT: let all GPUs from Ampere on run the engine."
)
@click.option(
    "--steps",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep what is made in between in this folder.",
)
@making.choices
def COMMAND(
    model: str,
    to: str,
    scheme: str | None,
    targets: tuple[str, ...],
    prompt_tokens: "Lengths | None",
    concurrency: int | None,
    profiles: tuple[str, ...],
    calibration: Path | None,
    workspace: str | None,
    weight_streaming: bool,
    strip_weights: bool,
    version_compatible: bool,
    hardware_compatible: bool,
    steps: Path | None,
    out: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Convert MODEL (a folder, a hub id or an .onnx file) and prove that the result computes the same.

    Engines are built for sizes that follow from the lengths you give, and what they compute in is read back:
    an engine that silently is in 32 bits is an error. What it takes is said before work begins; a format that
    cannot be made is refused with the list of those that can. The folder holds chain.json and reproduce.py.
    """
    from model_optimizer.convert.run import Asked, Choices, Wish, parse
    from model_optimizer.core import units
    from model_optimizer.system import files

    most = concurrency or 32
    wish = Wish(
        build=Choices(
            capabilities=targets,
            profiles=tuple(parse(text) for text in profiles),
            asked=Asked(lengths=prompt_tokens, batch=(1, min(8, most), most), at_once=concurrency),
            workspace_bytes=units.parse_bytes(workspace) if workspace else None,
            weight_streaming=weight_streaming,
            strip_weights=strip_weights,
            version_compatible=version_compatible,
            hardware_compatible=hardware_compatible,
            cache=files.data_home() / "cache" / "timing",
        ),
        images=calibration if calibration and calibration.is_dir() else None,
        steps=steps,
    )
    _carry_out(model, wish, to, scheme, calibration, out, dry_run=dry_run, as_json=as_json)


def _carry_out(
    model: str,
    wish: "Wish",
    to: str,
    scheme: str | None,
    calibration: Path | None,
    out: Path,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from model_optimizer.flow import convert as stage

    texts = calibration if calibration and not calibration.is_dir() else None
    found = stage.prepare(model, wish, to=to, scheme=scheme, texts_file=texts)
    making.carry_out(
        found.work,
        out,
        dry_run=dry_run,
        as_json=as_json,
        make=lambda place, progress: stage.convert(found, place, progress=progress),
    )

"""`mopt deploy`: the files that run an artefact somewhere else."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_optimizer.cli import options

if TYPE_CHECKING:
    from model_optimizer.core import Lengths
    from model_optimizer.deploy.triton import Place

GROUP = "ship"
TARGETS = {"triton": "a model repository of Triton Inference Server, from an artefact of `mopt convert`"}


@click.command(short_help="Write the files that run it somewhere else.")
@click.argument("artifact", required=False, type=click.Path(path_type=Path))
@click.option("--to", "target", metavar="TARGET", help="What to write; --targets lists them.")
@click.option("--targets", "listed", is_flag=True, help="List the targets.")
@click.option("--out", type=click.Path(path_type=Path), help="The folder to make. It must not exist.")
@click.option("--name", help="What requests call the model; the folder's name by default.")
@click.option("--device", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True)
@click.option(
    "--instances", type=click.IntRange(min=1), default=1, show_default=True, help="Copies on a device."
)
@click.option("--max-batch", type=click.IntRange(min=1), help="Most requests in a batch.")
@click.option("--prompt-tokens", type=options.LengthsType(), help="Lengths that will be asked.")
@click.option("--gpu", metavar="NAME", help="The GPU that will run it, for example l4: an engine must fit.")
@click.option("--tensorrt", metavar="VERSION", help="The TensorRT that will run it: an engine must fit.")
@options.as_json
def COMMAND(
    artifact: Path | None,
    target: str | None,
    listed: bool,
    out: Path | None,
    name: str | None,
    device: str,
    instances: int,
    max_batch: int | None,
    prompt_tokens: "Lengths | None",
    gpu: str | None,
    tensorrt: str | None,
    as_json: bool,
) -> None:
    """Write what another system needs to run ARTIFACT, a folder that `mopt convert` made.

    An engine of TensorRT runs with the version that built it, on GPUs of the kind it was built on: name the
    target with --gpu and --tensorrt, and one that cannot run there is refused.
    """
    import json

    from model_optimizer.core import UsageError
    from model_optimizer.core.profiles import HELD
    from model_optimizer.deploy import triton
    from model_optimizer.system import making

    if listed:
        lines = "".join(f"{key}  {text}\n" for key, text in TARGETS.items())
        click.echo(json.dumps({"targets": TARGETS}, indent=2) + "\n" if as_json else lines, nl=False)
        return
    if target not in TARGETS:
        raise UsageError(
            f"there is no target `{target}`" if target else "no target was named",
            hint=(f"--to {' | '.join(TARGETS)}",),
        )
    if artifact is None or out is None:
        raise UsageError(
            "an artefact and --out are needed", hint=("mopt deploy ./engine --to triton --out repo",)
        )
    making.require_new(out)
    wish = triton.Wish(
        name=name,
        device=device,
        instances=instances,
        max_batch=max_batch,
        longest=prompt_tokens.quantile(HELD) if prompt_tokens else None,
        place=_place(gpu, tensorrt),
    )
    made = triton.write(artifact, out, wish)
    if as_json:
        click.echo(json.dumps({"target": target, "path": str(out), "model": str(made)}, indent=2))
        return
    click.echo(f"{made}\n  {made / 'config.pbtxt'}\n  {out / 'README.md'}")


def _place(gpu: str | None, tensorrt: str | None) -> "Place":
    from model_optimizer.deploy.triton import Place
    from model_optimizer.facts import gpus
    from model_optimizer.facts.versions import key

    if tensorrt:
        key(tensorrt)
    fact = gpus.find(gpu) if gpu else None
    return Place(
        gpu=fact.name if fact else None,
        compute_capability=fact.compute_capability if fact else None,
        tensorrt=tensorrt,
    )

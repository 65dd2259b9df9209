"""What `mopt verify` is asked for by layer."""

from pathlib import Path
from typing import Any

import click

from model_optimizer.core import UsageError

from .options import together

NAMED = {"top-k-999": ("topk", 0.999)}
"""Limits that people quote by a name: 99.9 % top-k match, over at least 100 prompts."""


class LimitType(click.ParamType[Any]):
    """`recovery=0.95` as a name and a number."""

    name = "METRIC=X"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        name, _, number = str(value).partition("=")
        if str(value).strip() in NAMED:
            return NAMED[str(value).strip()]
        try:
            return name.strip().replace("-", "_"), float(number)
        except ValueError:
            raise UsageError(
                f"--gate takes a metric and its limit, not `{value}`",
                hint=("--gate recovery=0.95", f"or by name: {', '.join(NAMED)}"),
            ) from None


by_layer = together(
    click.option("--engine", help="format: what will read it, vllm==0.25.1; quality: what runs X."),
    click.option("--gpu", help="format: the GPU that will compute it, for example 'l40s'."),
    click.option(
        "--tp",
        "tensor_parallel",
        type=click.IntRange(min=1),
        default=1,
        help="format: GPUs to a layer.",
    ),
    click.option(
        "--gate",
        type=LimitType(),
        multiple=True,
        help="model, quality: a limit of your own, recovery=0.95, free-running=0.9; or top-k-999.",
    ),
    click.option(
        "--tasks",
        type=click.Path(path_type=Path, dir_okay=False),
        help="quality: questions with choices, JSON lines with context, choices and answer.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=16, max=131072),
        default=1024,
        show_default=True,
        help="quality: where a text is cut.",
    ),
    click.option(
        "--free-tokens",
        type=click.IntRange(min=0, max=256),
        default=32,
        show_default=True,
        help="model: tokens that both models continue a text by themselves; 0: none.",
    ),
    click.option("--by-layer", "layers", is_flag=True, help="quality: the error behind each layer."),
    click.option(
        "--sensitivity", is_flag=True, help="quality: which layers cost most, to leave in high precision."
    ),
)

"""What `mopt verify` is asked of the layers `operators` and `service`, as one noun."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import together

if TYPE_CHECKING:
    from model_optimizer.flow.verify_inside import Inside

NAMES = (
    "cut_out", "steps", "service_model", "concurrency", "requests", "ttft_ms", "tpot_ms", "e2e_ms",
    "percentile",
)  # fmt: skip

_options = together(
    click.option(
        "--cut-out",
        type=click.Path(path_type=Path, file_okay=False),
        help="operators: the folder for the first bad one (default: first-bad-of-X).",
    ),
    click.option(
        "--steps",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="operators: what `mopt convert --steps` kept, where it is not beside X.",
    ),
    click.option("--model", "service_model", help="service: the name that X serves; default: its first."),
    click.option(
        "--concurrency", type=click.IntRange(min=2), default=8, show_default=True, help="service: at once."
    ),
    click.option(
        "--requests", type=click.IntRange(min=16), default=64, show_default=True, help="service: in all."
    ),
    click.option("--ttft-ms", type=float, help="service: limit on the time to the first token."),
    click.option("--tpot-ms", type=float, help="service: limit on the time per token."),
    click.option("--e2e-ms", type=float, help="service: limit on the whole time."),
    click.option("--percentile", type=float, default=99.0, show_default=True, help="service: of the limits."),
)


def inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gather these options as the argument `inside`."""

    @functools.wraps(function)
    def gathered(**given: Any) -> Any:
        return function(**{k: v for k, v in given.items() if k not in NAMES}, inside=_noun(given))

    return _options(gathered)


def _noun(given: dict[str, Any]) -> "Inside":
    from model_optimizer.core import Slo
    from model_optimizer.flow.verify_inside import Inside

    slo = Slo(**{key: given[key] for key in ("ttft_ms", "tpot_ms", "e2e_ms", "percentile")})
    return Inside(
        cut_out=given["cut_out"],
        steps=given["steps"],
        model=given["service_model"],
        concurrency=given["concurrency"],
        requests=given["requests"],
        slo=slo,
    )

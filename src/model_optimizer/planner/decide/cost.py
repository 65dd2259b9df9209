"""Money: what a plan costs by the price file, and from which load on it beats a hosted API."""

from model_optimizer.core import Cost, UsageError, Workload
from model_optimizer.facts.prices import Prices

from .steady import Shape, shape_of

HOUR = 3600.0


def cost(prices: Prices | None, gpu: str, gpus: int, work: Workload, rate: float | None) -> Cost | None:
    """`rate` is requests a second that the deployment serves; None where no throughput is known.

    UsageError when the file does not know the GPU.
    """
    if prices is None:
        return None
    each = prices.of(gpu)
    if each is None:
        raise UsageError(
            f"the price file does not say what an hour of {gpu} costs",
            hint=(f"it knows {', '.join(prices.gpu_per_hour) or 'no GPU'}",),
        )
    hour = each * gpus
    because = f"{gpus} x {each:g} {prices.currency}/h = {hour:g} {prices.currency}/h"
    shape = shape_of(work)
    if not rate:
        return Cost(currency=prices.currency, per_hour=hour, because=because, source=prices.source[0])
    output = rate * shape.output * HOUR / 1e6
    total = rate * (shape.prompt + shape.output) * HOUR / 1e6
    because += f"; {rate:.3g} requests/s are {total:.3g} M tokens/h"
    hosted, even = _hosted(prices, shape, rate, hour)
    if hosted is not None:
        because += f"; the hosted API asks {hosted:.3g} {prices.currency} for them"
    return Cost(
        currency=prices.currency,
        per_hour=hour,
        per_million_output_tokens=hour / output if output else None,
        per_million_input_tokens=hour / (rate * shape.prompt * HOUR / 1e6),
        per_million_tokens=hour / total,
        hosted_per_hour=hosted,
        break_even_tokens_per_day=even,
        because=because,
        source=prices.source[0],
    )


def _hosted(prices: Prices, shape: Shape, rate: float, hour: float) -> tuple[float | None, float | None]:
    """(what the API asks for an hour of this load, tokens a day from which on the plan is cheaper)."""
    api = prices.hosted_per_million_tokens
    if api is None:
        return None, None
    request = (shape.prompt * api.input + shape.output * api.output) / 1e6
    if request <= 0:
        return 0.0, None
    tokens = shape.prompt + shape.output
    return rate * request * HOUR, 24 * hour / request * tokens

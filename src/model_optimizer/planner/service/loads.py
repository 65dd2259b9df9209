"""Loads: the requests of a closed loop, an open one and a burst, and who follows whom.

Lengths and gaps are drawn with a seed of their own, so that equal questions get equal answers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from model_optimizer.core import Workload

from .loop import Request

SEED = 7
# Rounds of a closed loop that are looked at, after one in which it fills and before one in which it drains.
ROUNDS = 3
FEWEST, MOST = 24, 2048


@dataclass(slots=True)
class Load:
    """`requests` are there from the start, `follow` says what a finished one is followed by.

    The measured ones are those from `skip` on, without the last `drop`. `whole` is true when every request
    counts and throughput is over the whole time, as load generators with a number of requests do.
    """

    requests: list[Request]
    follow: Callable[[Request], Request | None]
    skip: int = 0
    drop: int = 0
    whole: bool = False


class _Lengths:
    def __init__(self, work: Workload) -> None:
        self._work, self._dice = work, random.Random(SEED)

    def draw(self, sent: float) -> Request:
        generates = self._work.task == "generate"
        prompt = self._work.prompt_tokens.draw(self._dice)
        output = self._work.output_tokens.draw(self._dice) if generates else 1
        return Request(prompt=prompt, output=output, sent=sent)


def closed(work: Workload, concurrency: int) -> Load:
    """`concurrency` clients, each of which sends the next request when its answer is complete."""
    lengths = _Lengths(work)
    total = work.requests or max(FEWEST, min((ROUNDS + 2) * concurrency, max(MOST, 3 * concurrency)))
    first = [lengths.draw(0.0) for _ in range(min(concurrency, total))]
    left = [total - len(first)]

    def follow(done: Request) -> Request | None:
        if left[0] <= 0:
            return None
        left[0] -= 1
        return lengths.draw(done.last or 0.0)

    whole = work.requests is not None
    skip = 0 if whole else min(concurrency, total // 3)
    return Load(requests=first, follow=follow, skip=skip, drop=skip, whole=whole)


def burst(work: Workload, count: int) -> Load:
    """All requests at once."""
    lengths = _Lengths(work)
    return Load(requests=[lengths.draw(0.0) for _ in range(count)], follow=_nobody, whole=True)


def opened(work: Workload, qps: float, count: int) -> Load:
    """Arrivals at a rate, whatever happens to those before. Poisson unless the workload says otherwise."""
    lengths, dice = _Lengths(work), random.Random(SEED + 1)
    now, requests = 0.0, list[Request]()
    for _ in range(count):
        now += _gap(work, dice) / qps * 1e3
        requests.append(lengths.draw(now))
    return Load(requests=requests, follow=_nobody, skip=count // 8, drop=count // 20)


def _gap(work: Workload, dice: random.Random) -> float:
    """A gap in units of the mean gap."""
    if work.arrivals == "constant":
        return 1.0
    if work.arrivals == "gamma":
        return dice.gammavariate(work.burstiness, 1 / work.burstiness)
    return dice.expovariate(1.0)


def _nobody(_: Request) -> None:
    return None

"""Trials on many machines: each order is one task of a Ray cluster, which starts its own server.

A task is handed the request of the study and the order, and makes the rest itself, so that nothing but plain
nouns travels. A worker that is lost loses its trial: the order is not answered, and the search asks again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_optimizer.core import HostError, UsageError
from model_optimizer.tune import Order, Outcome

from .study import TuneRequest

Execute = Callable[[Sequence[Order]], Iterator[tuple[Order, Outcome]]]


@contextmanager
def pool(
    address: str, request: TuneRequest, *, gpus: int, cpus: float = 1.0
) -> Generator[tuple[Execute, int]]:
    """(execute, how many orders at once). `address` is `ray://HOST:PORT`, `auto`, or `local` for a cluster of
    this machine that ends with the block. Each order takes `gpus` GPUs and `cpus` cores.

    HostError when Ray is not installed, the cluster cannot be reached, or holds no room for one order.
    """
    ray = _ray()
    _connect(ray, address)
    try:
        workers = _room(ray.cluster_resources(), gpus, cpus)
        remote = ray.remote(num_gpus=gpus, num_cpus=cpus, max_retries=0)(carry_out)

        def execute(orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            waiting = {remote.remote(request, order): order for order in orders}
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1)
                order = waiting.pop(ready[0])
                try:
                    yield order, ray.get(ready[0])
                except ray.exceptions.RayTaskError:
                    raise  # a bug of ours, or an error of the host: said, not hidden
                except ray.exceptions.RayError:
                    continue

        yield execute, workers
    finally:
        ray.shutdown()


def carry_out(request: TuneRequest, order: Order) -> Outcome:
    """What runs on a worker: the study is prepared there, by that machine's own look at itself."""
    import socket
    import tempfile

    from model_optimizer import api
    from model_optimizer.flow import study

    with tempfile.TemporaryDirectory(prefix="mopt-trial-") as place:
        folder = Path(place)
        (folder / "log").mkdir()
        prepared = study.prepare(request, folder, api.room(), lambda text, share: None)
        outcome = prepared.runner(order)
    return _named(outcome, socket.gethostname())


def _ray() -> Any:
    """The package as it is: its types are not written down."""
    from importlib import import_module

    try:
        found = import_module("ray")
        import_module("ray.exceptions")
    except ImportError as error:
        hint = ("install the extra: pip install 'model-optimizer[ray]'",)
        raise HostError("trials on other machines need Ray", hint=hint) from error
    return found


def _named(outcome: Outcome, worker: str) -> Outcome:
    from dataclasses import replace

    return replace(outcome, worker=worker)


def _connect(ray: Any, address: str) -> None:
    named = None if address == "local" else address
    try:
        ray.init(address=named, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise HostError(
            f"the Ray cluster `{address}` cannot be reached",
            cause=(str(error).splitlines()[0] if str(error) else type(error).__name__,),
            hint=("start one with `ray start --head`, or use --workers local",),
        ) from None


def _room(resources: dict[str, float], gpus: int, cpus: float) -> int:
    """How many orders fit at once."""
    have = resources.get("GPU", 0.0), resources.get("CPU", 0.0)
    most = int(have[1] // cpus) if not gpus else int(min(have[0] // gpus, have[1] // cpus))
    if most < 1:
        raise UsageError(
            f"the cluster has no room for one trial of {gpus} GPUs and {cpus:g} cores",
            cause=(f"it has {have[0]:g} GPUs and {have[1]:g} cores",),
        )
    return most

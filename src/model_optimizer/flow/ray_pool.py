"""Trials on many machines: each order is one task of a Ray cluster, which starts its own server.

What a task does is a function that is handed the order alone and makes the rest itself on its machine, so
that nothing but plain nouns travels. A worker that is lost loses its trial: the order is not answered, and
the search asks again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from model_optimizer.core import HostError, UsageError
from model_optimizer.system import local_http
from model_optimizer.tune import Order, Outcome
from model_optimizer.tune.turns import Execute


@contextmanager
def pool(
    address: str, work: Callable[[Order], Outcome], *, gpus: int, cpus: float = 1.0
) -> Generator[tuple[Execute, int]]:
    """(execute, how many orders at once). `address` is `ray://HOST:PORT`, `auto`, or `local` for a cluster of
    this machine that ends with the block. Each order takes `gpus` GPUs and `cpus` cores.

    HostError when Ray is not installed or the cluster cannot be reached, UsageError when it has no room for
    one order.
    """
    ray = _ray()
    _connect(ray, address)
    try:
        workers = _room(ray.cluster_resources(), gpus, cpus)
        remote = ray.remote(num_gpus=gpus, num_cpus=cpus, max_retries=0)(_carry_out)

        def execute(orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
            waiting = {remote.remote(work, order): order for order in orders}
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1)
                order = waiting.pop(ready[0])
                try:
                    yield order, ray.get(ready[0])
                except ray.exceptions.RayTaskError:
                    raise  # an error of the host, or a bug of ours: said, not hidden
                except ray.exceptions.RayError:
                    continue

        yield execute, workers
    finally:
        ray.shutdown()


def _carry_out(work: Callable[[Order], Outcome], order: Order) -> Outcome:
    import socket
    from dataclasses import replace

    return replace(work(order), worker=socket.gethostname())


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


def _connect(ray: Any, address: str) -> None:
    """Where nothing listens, Ray waits for minutes and then ends the process: so that is asked first."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if address not in ("local", "auto"):
        try:
            there = bool(place.hostname) and local_http.listens(place.hostname or "", place.port or 10001)
        except ValueError:
            there = False
        if not there:
            raise _unreachable(address, "nothing listens there")
    named = None if address == "local" else address
    try:
        ray.init(address=named, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise _unreachable(address, str(error).partition("\n")[0] or type(error).__name__) from None


def _unreachable(address: str, why: str) -> HostError:
    return HostError(
        f"the Ray cluster `{address}` cannot be reached",
        cause=(why,),
        hint=("start one with `ray start --head`, or use --workers local",),
    )


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

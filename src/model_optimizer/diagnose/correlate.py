"""What is known of a machine, said as facts that can speak for or against a cause.

A fact is None when the host does not tell: unknown speaks for nothing.
"""

import re
from collections.abc import Mapping

from model_optimizer.core import Host

from .machine_facts import MACHINE_FACTS, Fact


def no_driver(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.gpus is None else host.driver_version is None and not host.gpus


def gpu_works(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.gpus is None else host.driver_version is not None and bool(host.gpus)


def one_gpu(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if not host.gpus else len(host.gpus) == 1


def several_gpus(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if not host.gpus else len(host.gpus) > 1


def wsl(host: Host, _values: Mapping[str, str]) -> bool | None:
    return host.wsl


def not_wsl(host: Host, _values: Mapping[str, str]) -> bool | None:
    return None if host.wsl is None else not host.wsl


def geforce(host: Host, _values: Mapping[str, str]) -> bool | None:
    """GeForce and workstation RTX cards; forward compatibility, for one, is not for them."""
    if not host.gpus:
        return None
    return any(re.search(r"geforce|titan|\brtx\b|quadro", gpu.name, re.IGNORECASE) for gpu in host.gpus)


def driver_runs_needed_cuda(host: Host, values: Mapping[str, str]) -> bool | None:
    """The driver's CUDA is at least the `need` that the log names."""
    need = _version(values.get("need"))
    return None if need is None or host.driver_cuda is None else tuple(host.driver_cuda) >= need


def driver_too_old_for_needed_cuda(host: Host, values: Mapping[str, str]) -> bool | None:
    runs = driver_runs_needed_cuda(host, values)
    return None if runs is None else not runs


def before_ampere(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host, (8, 0))


def ampere_or_later(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(_below(host, (8, 0)))


def before_ada(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host, (8, 9))


def ada_or_later(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(_below(host, (8, 9)))


def blackwell(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _not(_below(host, (10, 0)))


def before_blackwell(host: Host, _values: Mapping[str, str]) -> bool | None:
    return _below(host, (10, 0))


FACTS: dict[str, tuple[Fact, str]] = {
    "no_driver": (no_driver, "the host has no NVIDIA driver"),
    "gpu_works": (gpu_works, "the host's driver sees its GPU"),
    "one_gpu": (one_gpu, "the host has one GPU"),
    "several_gpus": (several_gpus, "the host has several GPUs"),
    "wsl": (wsl, "the host is WSL2"),
    "not_wsl": (not_wsl, "the host is not WSL2"),
    "geforce": (geforce, "the host's GPU is not a data-centre card"),
    "driver_runs_needed_cuda": (driver_runs_needed_cuda, "the host's driver already runs this CUDA"),
    "driver_too_old_for_needed_cuda": (
        driver_too_old_for_needed_cuda,
        "the host's driver is older than this CUDA needs",
    ),
    "before_ampere": (before_ampere, "the host's GPU is older than Ampere"),
    "ampere_or_later": (ampere_or_later, "the host's GPU is Ampere or later"),
    "before_ada": (before_ada, "the host's GPU is older than compute capability 8.9"),
    "ada_or_later": (ada_or_later, "the host's GPU has compute capability 8.9 or later"),
    "blackwell": (blackwell, "the host's GPU is Blackwell"),
    "before_blackwell": (before_blackwell, "the host's GPU is older than Blackwell"),
    **MACHINE_FACTS,
}
"""By name: the question, and what to say when the answer is yes."""


def ask(names: tuple[str, ...], host: Host | None, values: Mapping[str, str]) -> tuple[str, ...]:
    """What the host says, of the facts named; () without a host."""
    return () if host is None else tuple(FACTS[n][1] for n in names if FACTS[n][0](host, values))


def platform(host: Host | None) -> str | None:
    """The key of a distribution's own fixes: ubuntu, debian, rhel, wsl2, windows."""
    if host is None:
        return None
    if host.wsl:
        return "wsl2"
    words = f"{host.distribution or ''} {host.os or ''}".lower()
    if re.search(r"rocky|rhel|red hat|alma|centos|fedora|oracle linux", words):
        return "rhel"
    return next((name for name in ("ubuntu", "debian", "windows") if name in words), None)


def _below(host: Host, capability: tuple[int, int]) -> bool | None:
    known = [gpu.compute_capability for gpu in host.gpus or () if gpu.compute_capability]
    return all(tuple(c) < capability for c in known) if known else None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(found[1]), int(found[2] or 0)) if found else None

"""The Python packages fit together as they declare.

vLLM and the quantizers pin exact versions of PyTorch and transformers. A later `pip install` that
replaces one breaks the other at import, often with an undefined symbol.
"""

from collections.abc import Mapping

from model_optimizer.core import Finding, Host, MoptError
from model_optimizer.doctor import advice

LAYER = "packages"
AFTER: tuple[str, ...] = ()
SOURCE = ("metadata of the installed packages (Requires-Dist)",)


def check(host: Host) -> Finding:
    if host.packages is None or host.requirements is None:
        return advice.unknown("the installed packages")
    if not host.requirements:
        return advice.not_here("no package here that pins others")
    broken = [
        line for name, wants in host.requirements.items() for line in _unmet(name, wants, host.packages)
    ]
    if broken:
        return Finding(
            status="fail",
            message=f"installed packages contradict each other: {broken[0]}",
            evidence="; ".join(broken),
            hint="give each of them an environment of its own (mopt env create NAME), or "
            "reinstall the one that pins:\n"
            f"pip install {broken[0].split(' ')[0]}=={host.packages[broken[0].split(' ')[0]]}",
        )
    return Finding(
        status="ok",
        message=f"{len(host.requirements)} packages that pin others are content",
        evidence=", ".join(host.requirements),
    )


def _unmet(name: str, wants: tuple[str, ...], have: Mapping[str, str]) -> list[str]:
    from model_optimizer.system.environments import versions  # takes its time

    found: list[str] = []
    for want in wants:
        try:
            why = versions.unmet(want, have)
        except MoptError:
            continue  # a clause that is not of the plain kind decides nothing
        if why and "missing" not in why:
            found.append(f"{name} wants {want}, {why.split(',')[0]}")
    return found

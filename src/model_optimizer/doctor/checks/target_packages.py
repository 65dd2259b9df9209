"""What shall be installed fits the packages that are here.

Engines pin PyTorch. Installed into an environment that has another one, they replace it, and what needs
the old one breaks.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.core.target import Target
from model_optimizer.doctor import advice

LAYER = "target"
TARGETED = True
AFTER: tuple[str, ...] = ()
SOURCE = ("facts/compatibility: the PyTorch that each release pins",)


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None or not [n for n in target.needs if n.kind == "package"]:
        return advice.not_here("no package is meant")
    if host.packages is None:
        return advice.unknown("the installed packages")
    for need in target.needs:
        for name, wanted in need.pins.items():
            here = host.packages.get(name)
            if need.kind == "package" and here and here.partition("+")[0] != wanted:
                return Finding(
                    status="warn",
                    message=f"{need.asked} pins {name} {wanted}, and this environment has "
                    f"{here}: pip would replace it",
                    evidence=f"{name} {here} installed",
                    hint="give it an environment of its own: python3 -m venv NAME && NAME/bin/pip install "
                    + need.asked,
                )
    return Finding(
        status="ok",
        message="fits the packages that are here",
        evidence=", ".join(f"{n} {v}" for n, v in host.packages.items())[:200] or "none of them installed",
    )

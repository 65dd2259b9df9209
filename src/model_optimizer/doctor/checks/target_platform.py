"""What shall run is made for this operating system and Python.

vLLM, SGLang and TensorRT-LLM are for Linux; wheels are for the versions of Python that the release names.
"""

from model_optimizer.core import Finding, Host, MoptError
from model_optimizer.core.target import Target

LAYER = "target"
TARGETED = True
AFTER: tuple[str, ...] = ()
SOURCE = ("metadata of the release (Requires-Python)", "vLLM docs, installation: Linux only")


def check(host: Host, target: Target | None = None) -> Finding:
    if target is None:
        return Finding(status="skipped", message="nothing was named with --for")
    for need in target.needs:
        if need.kind == "package" and need.platforms and host.os and host.os not in need.platforms:
            return Finding(
                status="fail",
                message=f"{need.asked} runs on {' and '.join(need.platforms)}, this is {host.os}",
                evidence=host.distribution or host.os,
                hint="on Windows: wsl --install -d Ubuntu-24.04, and install it there",
            )
        if need.python and host.python and need.kind == "package":
            why = _unfit(host.python, need.python)
            if why:
                return Finding(
                    status="fail",
                    message=f"{need.asked} needs Python {need.python}, this is {host.python}",
                    evidence=why,
                    hint="make its environment with another interpreter: python3.12 -m venv NAME",
                )
    return Finding(
        status="ok",
        message="made for this system",
        evidence=f"{host.os or 'unknown system'}, Python {host.python or '?'}",
    )


def _unfit(python: str, wanted: str) -> str | None:
    from model_optimizer.system.environments import versions  # takes its time

    try:
        return versions.unmet(f"python {wanted}", {"python": python})
    except MoptError:
        return None

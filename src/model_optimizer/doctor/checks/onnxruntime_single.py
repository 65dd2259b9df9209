"""Only one build of ONNX Runtime is installed.

onnxruntime and onnxruntime-gpu install into the same folder: the one installed last wins, in part, and
the GPU provider is silently gone.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "packages"
AFTER: tuple[str, ...] = ()
SOURCE = ("onnxruntime.ai, install (one of the packages per environment)",)


def check(host: Host) -> Finding:
    if host.packages is None:
        return advice.unknown("the installed packages")
    here = [n for n in ("onnxruntime", "onnxruntime-gpu") if n in host.packages]
    if not here:
        return advice.not_here("no ONNX Runtime here")
    evidence = ", ".join(f"{n} {host.packages[n]}" for n in here)
    if len(here) > 1:
        return Finding(
            status="fail",
            message="onnxruntime and onnxruntime-gpu are both installed and overwrite each other",
            evidence=evidence,
            hint="pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
        )
    return Finding(status="ok", message=evidence, evidence=evidence)

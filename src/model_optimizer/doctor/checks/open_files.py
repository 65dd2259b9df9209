"""A process may open as many files as a busy server has connections.

vLLM raises its own limit to 65535 when it starts; where the hard limit forbids that, requests fail under
load.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("vLLM 0.25.1, utils/system_utils.py set_ulimit (65535)",)
WANTED = 65535


def check(host: Host) -> Finding:
    most = host.limits.open_files
    if most is None:
        return advice.unknown("the limit of open files")
    evidence = f"hard limit of open files: {'none' if most < 0 else most}"
    if 0 <= most < 4096:
        return _few(host, most, evidence)
    return Finding(
        status="ok",
        message=f"a process may open {'any number of' if most < 0 else most} files",
        evidence=evidence,
    )


def _few(host: Host, most: int, evidence: str) -> Finding:
    return Finding(
        status="warn",
        message=f"a process may open only {most} files: connections beyond that are refused",
        evidence=evidence,
        hint=advice.steps(
            host,
            f"echo '* hard nofile {WANTED}' | sudo tee /etc/security/limits.d/90-nofile.conf, "
            "then log in again",
            f"for a service: LimitNOFILE={WANTED} in its unit",
            container=f"start this container again with --ulimit nofile={WANTED}:{WANTED}",
        ),
    )

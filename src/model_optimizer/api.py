"""The public Python API: finds the plug-ins, then hands stages what they need. At most 25 names.

Everything that the command line does is a call of this module.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.core import Finding, Host, codec, plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["doctor", "load_host", "probe", "save"]


def probe() -> Host:
    """What this machine looks like now; see core.Host."""
    from model_optimizer.system import probe as system_probe

    return system_probe.probe()


def load_host(path: Path) -> Host:
    """A host that was saved. Raises UsageError when the file does not hold one."""
    return codec.load(path, Host)


def save(noun: object, path: Path) -> None:
    """Write a noun as JSON, whole or not at all. Raises HostError when that is not possible."""
    from model_optimizer.system import files

    files.write_atomic(path, codec.dumps(noun))


def doctor(host: Host) -> "Sequence[Finding]":
    """One finding a check, in order of dependency."""
    from model_optimizer.doctor import examine

    return examine(host, plugins.load_all("model_optimizer.doctor.checks"))

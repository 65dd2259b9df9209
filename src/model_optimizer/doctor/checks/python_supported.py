"""Python is one that the stage environments can be made with.

The locks are resolved for CPython 3.11 and 3.12; an older interpreter cannot run the base either.
"""

from model_optimizer.core import Finding, Host

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("system/locks, about.toml of each environment",)
OLDEST, NEWEST = (3, 11), (3, 12)


def check(host: Host) -> Finding:
    if host.python is None:
        return Finding(status="unknown", message="the Python version could not be read")
    version = tuple(int(part) for part in host.python.split(".")[:2])
    evidence = f"Python {host.python}"
    if version < OLDEST:
        return Finding(
            status="fail",
            message=f"Python {host.python} is too old",
            evidence=evidence,
            hint="install Python 3.11 or 3.12 and make the virtual environment with it",
        )
    if version > NEWEST:
        return Finding(
            status="warn",
            message=f"Python {host.python} is newer than the locks of the stage environments",
            evidence=evidence,
            hint="`mopt env create NAME --python python3.12` makes them with another interpreter",
        )
    return Finding(status="ok", message=f"Python {host.python}", evidence=evidence)

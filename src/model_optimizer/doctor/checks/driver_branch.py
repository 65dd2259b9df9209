"""The driver's branch still gets security updates.

NVIDIA serves each branch until a month that is known beforehand; after it, holes stay open.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import drivers

LAYER = "driver"
AFTER = ("driver_present",)
SOURCE = (
    "docs.nvidia.com/datacenter/tesla/drivers, supported drivers and CUDA toolkit versions "
    "(facts/compatibility/drivers.toml)",
)


def check(host: Host) -> Finding:
    if host.driver_version is None:
        return advice.not_here("no driver to ask about")
    if host.os == "Windows" or host.wsl:
        return advice.not_here("Windows drivers are numbered apart")
    row = drivers.describe(host.driver_version).branch
    if row is None:
        return Finding(
            status="unknown", message=f"the facts know no end of life of driver {host.driver_version}"
        )
    if host.taken is None:
        return advice.unknown("the day of this picture")
    evidence = (
        f"driver {host.driver_version}, branch {row.branch} ({row.kind}), served until {row.end_of_life}"
    )
    if drivers.past_end_of_life(row, host.taken):
        return Finding(
            status="warn",
            message=f"branch {row.branch} is past its end of life ({row.end_of_life}): no "
            "more security updates",
            evidence=evidence,
            hint=advice.install_driver(host),
        )
    return Finding(
        status="ok", message=f"branch {row.branch} is served until {row.end_of_life}", evidence=evidence
    )

"""The machine runs on mains power.

On battery a laptop's GPU gets a fraction of its power limit: measurements then say nothing about the GPU.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = ("facts/gpus, power ranges of laptop GPUs (a 4060 laptop has 35 to 115 W)",)


def check(host: Host) -> Finding:
    if host.platform.on_battery is None:
        return advice.unknown("the source of power")
    if not host.platform.on_battery:
        return Finding(status="ok", message="mains power", evidence="/sys/class/power_supply")
    return Finding(
        status="warn",
        message="the machine runs on battery: the GPU is slower than it can be",
        evidence="/sys/class/power_supply: no adapter is online",
        hint="plug it in before you measure; choose the performance profile "
        "(`powerprofilesctl set performance`)",
    )

"""On a machine with two kinds of GPU, NVIDIA's is not switched off.

Ubuntu's PRIME setting `intel` takes the NVIDIA GPU off the bus: the driver is installed and shows nothing.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "hardware"
AFTER: tuple[str, ...] = ()
SOURCE = ("Ubuntu nvidia-prime, prime-select(8)",)


def check(host: Host) -> Finding:
    others = [a for a in host.adapters or () if a.vendor in ("intel", "amd") and a.kind == "display"]
    if not (host.platform.laptop and others) and host.platform.prime is None:
        return advice.not_here("only one kind of GPU here")
    evidence = f"/etc/prime-discrete: {host.platform.prime or 'not there'}"
    if host.platform.prime == "off":
        return Finding(
            status="fail",
            message="the NVIDIA GPU is switched off: PRIME is set to the other one",
            evidence=evidence,
            hint="sudo prime-select on-demand, then reboot",
        )
    mode = f" ({host.platform.prime})" if host.platform.prime else ""
    return Finding(status="ok", message=f"hybrid graphics, the NVIDIA GPU is on{mode}", evidence=evidence)

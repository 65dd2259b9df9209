"""Every GPU on the bus is also seen by the driver.

A GPU that fell off the bus, or that the driver could not start, stays on the PCI list for a while and is
missing from the driver's.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "gpu"
AFTER = ("gpu_visible",)
SOURCE = (
    "NVIDIA/NVSentinel#155",
    "NVIDIA/open-gpu-kernel-modules#862",
    "NVIDIA's catalogue of Xid errors, 79",
)


def check(host: Host) -> Finding:
    lost = advice.messages(host, r"fallen off the bus|GPU is lost|RmInitAdapter failed")
    if host.adapters is None or not host.gpus:
        return advice.not_here("no list of PCI devices to compare with") if not lost else _finding(lost, "")
    here = [a for a in advice.nvidia_adapters(host) if a.driver == "nvidia"]
    count = f"{len(here)} GPUs on the PCI bus belong to the driver, {len(host.gpus)} are in its list"
    if host.container or len(host.gpus) >= len(here):
        return Finding(status="ok", message="the driver sees every GPU", evidence=count)
    return _finding(lost, count)


def _finding(lost: tuple[str, ...], count: str) -> Finding:
    return Finding(
        status="fail",
        message="a GPU has fallen off the bus, or the driver could not start it",
        evidence="; ".join(filter(None, (count, *lost[-2:]))),
        hint="shut the machine down and start it cold\n"
        "when it comes back: check power cables, temperature, riser and slot; in the "
        "firmware turn on Above 4G Decoding\n"
        "read the first of the driver's lines: sudo dmesg | grep -m5 NVRM",
    )

"""The kernel log holds no error reports of the driver that blame the hardware.

The driver reports faults as numbers (Xid). Some are the fault of a program; others say that memory, links
or firmware of the GPU failed, and nothing measured after them counts.
"""

import re

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice
from model_optimizer.facts import metrics

LAYER = "gpu"
AFTER = ("gpu_hardware", "ecc_errors", "gpu_lost")
SOURCE = ("facts/metrics/xids.toml, after NVIDIA's catalogue of Xid errors",)


def check(host: Host) -> Finding:
    if advice.has_nvidia(host) is False:
        return advice.not_here("no NVIDIA GPU here")
    if host.modules.messages is None:
        return advice.unknown("the kernel log")
    lines = advice.messages(host, r"NVRM: Xid")
    numbers = [int(n[1]) for n in (re.search(r"Xid \([^)]*\): (\d+)", line) for line in lines) if n]
    known = metrics.xids()
    bad = [n for n in numbers if n in known and known[n].fatal]
    if bad:
        meanings = ", ".join(f"{n} ({known[n].means})" for n in dict.fromkeys(bad))
        return Finding(
            status="fail",
            message=f"the driver reported a fault of the hardware: Xid {meanings}",
            evidence=next(line for line in reversed(lines) if f"): {bad[-1]}" in line),
            hint="take the work off this GPU, then reset it (nvidia-smi --gpu-reset -i N) or reboot\n"
            "when the number comes back, have the GPU, its cables and its slot checked",
        )
    if numbers:
        known_ones = ", ".join(
            f"{n} ({known[n].means if n in known else 'not in the list'})" for n in dict.fromkeys(numbers)
        )
        return Finding(
            status="warn",
            message=f"programs made faults on the GPU: Xid {known_ones}",
            evidence=lines[-1],
            hint="look at the log of the program that ran then: mopt diagnose LOG",
        )
    return Finding(status="ok", message="no Xid in the kernel log", evidence="dmesg")

"""The NVIDIA driver answers.

Everything above it, from CUDA to the serving engine, talks to the GPU through the driver. A machine
without an NVIDIA GPU is fine for the CPU engines, so a missing driver is a warning until a plan asks
for a GPU.
"""

from model_optimizer.core import Finding, Host

AFTER: tuple[str, ...] = ()


def check(host: Host) -> Finding:
    if host.driver_version is None:
        return Finding(
            status="warn",
            message="no NVIDIA driver answered: only CPU engines can run here",
            evidence="NVML could not be started",
            hint="if this machine has an NVIDIA GPU, install its driver and check `nvidia-smi`",
        )
    return Finding(status="ok", message=f"driver {host.driver_version}", evidence="NVML")

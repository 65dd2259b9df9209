"""Shared memory is large enough for the processes of one server.

Servers with several processes pass tensors through /dev/shm. Docker gives a container 64 MiB of it, and
NCCL and PyTorch then end with a bus error or wait for ever.
"""

from model_optimizer.core import Finding, Host, units
from model_optimizer.doctor import advice

LAYER = "machine"
AFTER: tuple[str, ...] = ()
SOURCE = (
    "vLLM docs, deployment with Docker (--ipc=host or --shm-size)",
    "vllm-project/vllm#1771",
    "pytorch/pytorch#5040",
)
WANTED_BYTES = 1 << 30


def check(host: Host) -> Finding:
    size = host.limits.shared_memory_bytes
    if size is None:
        return advice.unknown("the size of /dev/shm")
    shown = f"/dev/shm has {units.show_bytes(size)}"
    if size >= WANTED_BYTES:
        return Finding(status="ok", message=shown, evidence=shown)
    return Finding(
        status="fail" if len(host.gpus or ()) > 1 else "warn",
        message=f"{shown}: too small for a server with several processes",
        evidence=shown,
        hint=advice.steps(
            host,
            "sudo mount -o remount,size=50% /dev/shm",
            container="start this container again with --ipc=host, or with --shm-size=16g",
        ),
    )

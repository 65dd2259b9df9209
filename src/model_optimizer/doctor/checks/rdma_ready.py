"""With RDMA devices, GPUs can send from their own memory.

NCCL uses GPUDirect when the module nvidia_peermem is loaded (or the kernel has dma-buf) and memory may be
locked.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "network"
AFTER = ("gpu_visible",)
SOURCE = (
    "docs.nvidia.com/datacenter/cloud-native/gpu-operator, GPUDirect RDMA",
    "NCCL documentation, NCCL_IB_*",
)
WANTED_BYTES = 1 << 30


def check(host: Host) -> Finding:
    if host.network.rdma is None:
        return advice.unknown("the RDMA devices")
    if not host.network.rdma or not host.gpus:
        return advice.not_here("no RDMA devices with GPUs here")
    evidence = ", ".join(host.network.rdma)
    lock = host.limits.memory_lock_bytes
    if lock is not None and 0 <= lock < WANTED_BYTES:
        return Finding(
            status="warn",
            message="a process may lock too little memory for RDMA: NCCL fails when it registers buffers",
            evidence=f"{evidence}; locked memory: {lock} bytes",
            hint=advice.steps(
                host,
                "echo '* - memlock unlimited' | sudo tee "
                "/etc/security/limits.d/90-memlock.conf, then log in again",
                container="start this container again with --ulimit memlock=-1 --cap-add IPC_LOCK",
            ),
        )
    if not {"nvidia_peermem", "nv_peer_mem"} & set(host.modules.loaded or ()):
        return Finding(
            status="warn",
            message="nvidia_peermem is not loaded: traffic between machines may go through the host's memory",
            evidence=f"{evidence}; /proc/modules has no nvidia_peermem",
            hint="sudo modprobe nvidia_peermem && echo nvidia_peermem | sudo tee "
            "/etc/modules-load.d/nvidia_peermem.conf\n"
            "kernels with dma-buf do without it: NCCL_DEBUG=INFO says GDRDMA",
        )
    return Finding(
        status="ok", message=f"{len(host.network.rdma)} RDMA devices, peer memory loaded", evidence=evidence
    )

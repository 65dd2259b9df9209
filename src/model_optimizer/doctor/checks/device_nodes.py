"""The GPU's device nodes are there.

Programs reach the GPU through /dev/nvidia*. A container has them only when it was started with the GPU;
on a host nvidia-modprobe makes them.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "driver"
AFTER = ("module_loaded",)
SOURCE = ("docs.nvidia.com/datacenter/cloud-native/container-toolkit", "mattshma/bigdata#133")


def check(host: Host) -> Finding:
    if found := advice.linux_gpu(host):
        return found
    nodes = host.modules.device_nodes
    if nodes is None:
        return advice.unknown("the device nodes")
    if any(name[6:].isdigit() for name in nodes) and "nvidiactl" in nodes:
        return _all_there(host, nodes)
    if not host.modules.nvidia_version and not host.driver_version:
        return advice.not_here("no module is loaded, so there are no nodes")
    if host.driver_version and host.gpus:
        return Finding(status="ok", message="the driver reaches its GPUs", evidence="NVML")
    return Finding(
        status="fail",
        message="this container was started without the GPU"
        if host.container
        else "the GPU's device nodes are missing",
        evidence=f"module {host.modules.nvidia_version} is loaded; /dev has "
        f"{', '.join(nodes) or 'no node of it'}",
        hint=advice.steps(
            host,
            "sudo nvidia-modprobe -c 0 -u && ls -l /dev/nvidia*",
            container=(
                "start it again with: docker run --gpus all ...   (Podman: --device nvidia.com/gpu=all)",
                "do not install a driver in the image: it comes from the host",
            ),
        ),
    )


def _all_there(host: Host, nodes: tuple[str, ...]) -> Finding:
    """The GPU and its control are there; CUDA needs a third node for memory."""
    shown = ", ".join(nodes[:6])
    if "nvidia-uvm" in nodes:
        return Finding(status="ok", message=shown, evidence="/dev")
    return Finding(
        status="warn",
        message="the node nvidia-uvm is missing: CUDA fails with an unknown error (999)",
        evidence=f"/dev has {shown}",
        hint=advice.steps(
            host,
            "sudo nvidia-modprobe -u && ls -l /dev/nvidia-uvm",
            container="on the host: sudo nvidia-modprobe -u; then start this container again",
        ),
    )

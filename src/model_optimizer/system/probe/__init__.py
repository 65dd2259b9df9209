"""Take a picture of this machine. Nothing is changed, no root is needed, nothing here raises.

What could not be read is None. One reader a file, each with its own time limit; what was cut short is
said in `Host.unread`. Sources: /proc, /sys and /etc on Linux, NVML for GPUs, a few programs that print.
"""

from model_optimizer.core import Cpu, Host
from model_optimizer.core.host import Containers, Limits, Linker, Modules, Network, Platform

from . import adapters, containers, gpus, ground, limits, linker, machine, modules, network, packages
from .anonymous import anonymous
from .machine import available_memory_bytes
from .timed import Reader, together
from .world import World

__all__ = ["World", "anonymous", "available_memory_bytes", "probe"]

NVML_LIMIT_S = 8.0  # without persistence mode the driver takes up to a second for each GPU to start
LIMIT_S = 6.0  # a reader may start two programs, each of which has less


def probe(world: World | None = None, *, ask_hub: bool = False) -> Host:
    """What a machine looks like now: this one, or the one that `world` stands for. Takes at most 8 s.

    `ask_hub` also tries whether the model hub can be reached, which takes its time without a network.
    """
    here = world or World()
    readers = _readers(here)
    if not ask_hub:
        del readers["hub"]
    found, unread = together(readers)
    ground_, driver, around = found["machine"], found["nvml"], found["network"]
    return Host(
        os=here.system or None,
        distribution=ground_.distribution,
        kernel=ground_.kernel,
        wsl=ground_.wsl,
        container=ground_.container,
        cpu=ground_.cpu,
        memory_bytes=ground_.memory_bytes,
        memory_available_bytes=ground_.memory_available_bytes,
        disk_free_bytes=ground_.disk_free_bytes,
        python=here.python,
        packages=found["packages"].versions if found["packages"] else None,
        requirements=found["packages"].requirements if found["packages"] else None,
        container_runtimes=found["engines"],
        driver_version=driver.version,
        driver_cuda=driver.cuda,
        gpus=driver.gpus,
        taken=here.today(),
        nvml=driver.state,
        adapters=found["adapters"],
        platform=found["ground"],
        modules=found["modules"],
        linker=found["linker"],
        containers=found["containers"],
        limits=found["limits"],
        network=_with_hub(around, found.get("hub")),
        unread=(*unread, *here.late),
    )


def _readers(world: World) -> dict[str, Reader]:
    nothing = machine.Machine(cpu=Cpu())
    return {
        "machine": Reader(read=lambda: machine.read(world), limit_s=LIMIT_S, otherwise=nothing),
        "packages": Reader(read=lambda: packages.read(world), limit_s=LIMIT_S, otherwise=None),
        "adapters": Reader(read=lambda: adapters.read(world), limit_s=LIMIT_S, otherwise=None),
        "ground": Reader(read=lambda: ground.read(world), limit_s=LIMIT_S, otherwise=Platform()),
        "modules": Reader(read=lambda: modules.read(world), limit_s=LIMIT_S, otherwise=Modules()),
        "linker": Reader(read=lambda: linker.read(world), limit_s=LIMIT_S, otherwise=Linker()),
        "engines": Reader(read=lambda: containers.engines(world), limit_s=LIMIT_S, otherwise=None),
        "containers": Reader(read=lambda: containers.read(world), limit_s=LIMIT_S, otherwise=Containers()),
        "limits": Reader(read=lambda: limits.read(world), limit_s=LIMIT_S, otherwise=Limits()),
        "network": Reader(read=lambda: network.read(world), limit_s=LIMIT_S, otherwise=Network()),
        "hub": Reader(read=lambda: network.hub(world), limit_s=2.0, otherwise=None),
        "nvml": Reader(
            read=lambda: gpus.read(world), limit_s=NVML_LIMIT_S, otherwise=gpus.Driver(state="too slow")
        ),
    }


def _with_hub(around: Network, reachable: bool | None) -> Network:
    return Network(
        hub_reachable=reachable, busy_ports=around.busy_ports, servers=around.servers, rdma=around.rdma
    )

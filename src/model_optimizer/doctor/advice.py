"""What checks share: what kind of machine it is, and what to do there, one step a line."""

import re

from model_optimizer.core import Finding, Gpu, Host
from model_optimizer.core.host import Adapter
from model_optimizer.facts import drivers

_RHEL = frozenset(["rhel", "rocky", "almalinux", "centos", "ol", "fedora"])
_CONSUMER = re.compile(r"geforce|titan|\brtx\b|quadro", re.IGNORECASE)


def place(host: Host) -> str:
    """windows, wsl2, container, ubuntu, debian, rhel10, rhel9 or other: what decides which commands apply."""
    words = f"{host.platform.distribution_id or ''} {host.distribution or ''}".lower()
    if host.os == "Windows" or host.wsl:
        return "wsl2" if host.wsl else "windows"
    if host.container:
        return "container"
    if "ubuntu" in words or "mint" in words:
        return "ubuntu"
    if "debian" in words:
        return "debian"
    if any(name in words for name in (*_RHEL, "red hat", "oracle linux")):
        version = host.platform.version_id or next(iter(re.findall(r"\d+", words)), "9")
        return (
            "rhel10" if version.partition(".")[0] >= "10" and len(version.partition(".")[0]) > 1 else "rhel9"
        )
    return "other"


def steps(host: Host, *default: str, **by_place: tuple[str, ...] | str) -> str:
    """The steps for this machine. Names are those of `place`; `rhel` stands for 9 and 10, `deb` for both."""
    here = place(host)
    family = {"rhel9": "rhel", "rhel10": "rhel", "ubuntu": "deb", "debian": "deb"}.get(here, here)
    found = by_place.get(here, by_place.get(family, default))
    return found if isinstance(found, str) else "\n".join(found)


def branch(host: Host) -> str:
    """The number of the driver branch to install here: `580`."""
    return drivers.advised_branch(host.taken).branch.removeprefix("R")


def install_driver(host: Host, *, proprietary: bool = False) -> str:
    """How a driver gets onto this machine, with modules of the flavour that its GPU needs."""
    n = branch(host)
    flavour, package = ("", "cuda-drivers") if proprietary else ("-open", "nvidia-open")
    return steps(
        host,
        f"install NVIDIA driver {n} or newer with the package manager of this system, then reboot",
        ubuntu=(f"sudo apt install linux-headers-$(uname -r) nvidia-driver-{n}{flavour}", "sudo reboot"),
        debian=(
            "add NVIDIA's repository for Debian (its driver installation guide on docs.nvidia.com)",
            f"sudo apt install linux-headers-$(uname -r) nvidia-driver-pinning-{n}",
            f"sudo apt install {package} && sudo reboot",
        ),
        rhel9=(
            "sudo dnf install kernel-devel-$(uname -r) kernel-headers   # and NVIDIA's repository",
            f"sudo dnf module enable nvidia-driver:{n}{flavour or '-dkms'} && sudo dnf install {package}",
            "sudo reboot",
        ),
        rhel10=(
            "sudo dnf install kernel-devel-$(uname -r) python3-dnf-plugin-versionlock",
            f"sudo dnf versionlock '*nvidia*{n}*' && sudo dnf install {package}",
            "sudo reboot",
        ),
        wsl2=(
            f"install driver {n} or newer on Windows (never a Linux driver inside WSL2)",
            "in PowerShell: wsl --update; wsl --shutdown",
        ),
        windows=(f"install driver {n} or newer with the NVIDIA App, then restart",),
        container=(f"on the host, not in this container: install NVIDIA driver {n} or newer",),
    )


def install_container_toolkit(host: Host) -> str:
    """How NVIDIA's toolkit for containers gets onto this machine, and becomes known to Docker or Podman."""
    known = has_docker(host)
    register = (
        ("sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",)
        if known
        else ("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",)
    )
    add = "add NVIDIA's repository of the container toolkit (its install guide on docs.nvidia.com)"
    test = (
        "docker run --rm --gpus all ubuntu nvidia-smi"
        if known
        else "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"
    )
    return steps(
        host,
        "install nvidia-container-toolkit, then: " + register[0],
        deb=(add, "sudo apt install nvidia-container-toolkit", *register, test),
        wsl2=(add, "sudo apt install nvidia-container-toolkit", *register, test),
        rhel=(add, "sudo dnf install nvidia-container-toolkit", *register, test),
        windows=("use Docker Desktop with the WSL2 back end; it brings the toolkit", test),
        container=("on the host, not in this container: install nvidia-container-toolkit",),
    )


def has_docker(host: Host) -> bool:
    return "docker" in (host.container_runtimes or ())


def rebuild_modules(host: Host) -> str:
    """The headers of the running kernel, and the module built for it."""
    return steps(
        host,
        "install the headers of the running kernel, then: sudo dkms autoinstall && sudo modprobe nvidia",
        deb=("sudo apt install linux-headers-$(uname -r)", "sudo dkms autoinstall && sudo modprobe nvidia"),
        rhel=("sudo dnf install kernel-devel-$(uname -r)", "sudo dkms autoinstall && sudo modprobe nvidia"),
    )


def is_consumer(gpu: Gpu) -> bool:
    """GeForce and workstation cards, for which forward compatibility is not made."""
    return bool(_CONSUMER.search(gpu.name))


def has_nvidia(host: Host) -> bool | None:
    """Whether an NVIDIA GPU is in the machine, seen by the driver or on the bus. None: cannot be told."""
    if host.gpus:
        return True
    if host.wsl or host.os == "Windows" or host.adapters is None:
        return None
    return bool(nvidia_adapters(host))


def nvidia_adapters(host: Host) -> tuple[Adapter, ...]:
    """NVIDIA's GPUs on the bus, without those that were handed to a virtual machine."""
    here = (a for a in host.adapters or () if a.vendor == "nvidia" and a.kind != "switch")
    return tuple(a for a in here if a.driver != "vfio-pci")


def messages(host: Host, pattern: str) -> tuple[str, ...]:
    """Kernel messages that match, oldest first."""
    wanted = re.compile(pattern, re.IGNORECASE)
    return tuple(line for line in host.modules.messages or () if wanted.search(line))


def unknown(what: str) -> Finding:
    return Finding(status="unknown", message=f"{what} could not be read")


def not_here(why: str) -> Finding:
    """The question does not arise on this machine."""
    return Finding(status="skipped", message=why)


def linux_gpu(host: Host) -> Finding | None:
    """None where a Linux driver must serve an NVIDIA GPU; else why the question does not arise."""
    if host.os not in ("Linux", None):
        return not_here(f"{host.os} has no such layer")
    if host.wsl:
        return not_here("in WSL2 the driver is Windows's")
    if has_nvidia(host) is False:
        return not_here("no NVIDIA GPU here")
    return None


def gpus(host: Host) -> tuple[Gpu, ...] | Finding:
    """The GPUs that the driver shows, or why there are none to ask about."""
    if host.gpus is None:
        return unknown("the GPUs")
    return host.gpus or not_here("no NVIDIA GPU here")


def named(host: Host, which: list[Gpu]) -> str:
    """`GPU 0` or `GPU 0, 3` by the place in the host's list, or `the GPU` when there is one only."""
    if len(host.gpus or ()) == 1:
        return "the GPU"
    return "GPU " + places(host, which).replace(",", ", ")


def places(host: Host, which: list[Gpu]) -> str:
    """Their places in the host's list, as nvidia-smi's option -i takes them: `0,3`."""
    return ",".join(str(i) for i, gpu in enumerate(host.gpus or ()) if any(gpu is one for one in which))


def count(number: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def dotted(version: tuple[int, ...] | None) -> str:
    return "unknown" if version is None else ".".join(map(str, version))

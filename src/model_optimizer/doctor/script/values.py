"""What the steps are filled in with: branch and packages of the driver, repositories and their keys."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from model_optimizer.core import Host
from model_optimizer.doctor import advice
from model_optimizer.facts import drivers, read
from model_optimizer.facts.fact import Fact

# Distributions that take Red Hat's packages as they are.
_LIKE_RHEL = ("rhel", "rocky", "almalinux", "centos", "ol")
_KNOWN = {
    "ubuntu": ("22.04", "24.04", "26.04"),
    "debian": ("12", "13"),
    **dict.fromkeys(_LIKE_RHEL, ("9", "10")),
}
_LAST_PROPRIETARY_FOR_OLD = "580"  # see check module_flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository(Fact):
    """`is_` is what its signing key must be: `fpr:FINGERPRINT`, or `sha256:DIGEST` of the key's file."""

    id: str
    place: str
    url: str
    key: str
    is_: str


def system(host: Host) -> str | None:
    """`ubuntu 24.04` as /etc/os-release has it; None for one that the steps do not cover."""
    name, version = host.platform.distribution_id, host.platform.version_id
    if name is None or version is None or name not in _KNOWN:
        return None
    if host.wsl and name not in ("ubuntu", "debian"):
        return None
    short = version.partition(".")[0] if name != "ubuntu" else version
    return f"{name} {version}" if short in _KNOWN[name] else None


def of(host: Host) -> dict[str, str]:
    """Name of a shell variable, and its value. A step takes those that it names."""
    proprietary = wants_proprietary(host)
    branch = _branch(host, proprietary)
    toolkit, cuda = _repository("toolkit", "any"), _cuda(host)
    package = _package(host, branch, proprietary)
    found = {
        "branch": branch,
        "driver_package": package,
        "modules_package": package.replace("nvidia-driver-", "linux-modules-nvidia-"),
        "stream": f"{branch}-dkms" if proprietary else f"{branch}-open",
        "mok": "/var/lib/shim-signed/mok/MOK.der"
        if host.platform.distribution_id == "ubuntu"
        else "/var/lib/dkms/mok.pub",
        "toolkit_repository": toolkit.url,
        "toolkit_key": toolkit.key,
        "toolkit_key_is": toolkit.is_,
    }
    if cuda:
        machine = "sbsa" if host.platform.architecture in ("aarch64", "arm64") else "x86_64"
        found |= {
            "cuda_repository": cuda.url.format(machine=machine),
            "cuda_key": cuda.key,
            "cuda_key_is": cuda.is_,
        }
    return found


def wants_proprietary(host: Host) -> bool:
    """Whether the GPUs here are older than the open kernel modules serve."""
    rows = [drivers.generation(a.device) for a in advice.nvidia_adapters(host)]
    if rows:
        return all(row is None for row in rows)
    known = [gpu.compute_capability for gpu in host.gpus or () if gpu.compute_capability]
    return bool(known) and all(capability < (7, 5) for capability in known)


def _branch(host: Host, proprietary: bool) -> str:
    """The advised one; a newer one that is here already and still served stays."""
    advised = advice.branch(host)
    if proprietary:
        return min(advised, _LAST_PROPRIETARY_FOR_OLD)
    here = (host.driver_version or host.modules.nvidia_version or "").partition(".")[0]
    newer = next((row for row in drivers.branches() if row.branch == f"R{here}" and here > advised), None)
    served = newer and not (host.taken and drivers.past_end_of_life(newer, host.taken))
    return here if served else advised


def _package(host: Host, branch: str, proprietary: bool) -> str:
    """The package that brings the driver; on Ubuntu in its server variant where that is what is here."""
    if host.platform.distribution_id != "ubuntu":
        return "cuda-drivers" if proprietary else "nvidia-open"
    server = "-server" if any("-server" in name for name in host.modules.packages or ()) else ""
    return f"nvidia-driver-{branch}{server}{'' if proprietary else '-open'}"


def _cuda(host: Host) -> Repository | None:
    name, version = host.platform.distribution_id or "", host.platform.version_id or ""
    family = "rhel" if name in _LIKE_RHEL else name
    return next(
        (r for r in _repositories() if r.id == "cuda" and r.place == f"{family} {version.partition('.')[0]}"),
        None,
    )


def _repository(name: str, place: str) -> Repository:
    return next(r for r in _repositories() if r.id == name and r.place == place)


@cache
def _repositories() -> tuple[Repository, ...]:
    return read.toml_rows(Path(__file__).parent / "repositories.toml", "repository", Repository)

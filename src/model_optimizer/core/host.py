"""What one machine looked like at one moment.

A field is None when it could not be read, and empty when it was read and nothing was there.
Checks rely on that difference: "unknown" is never reported as "broken".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. Bandwidth is of its own memory; `nvlink_bytes_per_s` is the sum of both directions.

    `pcie` is the link as it is (`4.0 x8`) and `pcie_max` the best that GPU and slot can have together.
    `ecc_uncorrected` counts since the driver was loaded. `throttle` names what holds the clocks down now:
    idle, power_cap, thermal, hardware_thermal, hardware_slowdown, power_brake. `nvlinks` counts the links
    it has and `nvlinks_up` those that are up. `compute_mode` is default, exclusive or prohibited.
    `driver_model` is Windows's: WDDM, MCDM or TCC.
    """

    name: str
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    bandwidth_bytes_per_s: int | None = None
    power_limit_w: float | None = None
    pcie: str | None = None
    nvlink_bytes_per_s: int | None = None
    pcie_max: str | None = None
    bar1_bytes: int | None = None
    ecc: bool | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages: int | None = None
    throttle: tuple[str, ...] | None = None
    temperature_c: int | None = None
    power_limit_default_w: float | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_instances: int | None = None
    nvlinks: int | None = None
    nvlinks_up: int | None = None
    display: bool | None = None
    compute_mode: str | None = None
    driver_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """`features` are the instruction sets as the kernel names them (avx2, avx512f, amx_tile)."""

    name: str | None = None
    cores: int | None = None
    features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A display or compute adapter on the PCI bus, with or without a driver.

    `vendor` is nvidia, amd, intel or the number; `device` is the four hexadecimal digits of its kind.
    `kind` is display, compute or switch (NVSwitch).
    """

    vendor: str
    device: str
    kind: str = "display"
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The kernel's side of the driver. `loaded` are kernel modules, of those that matter to GPUs.

    `nvidia_version` is that of the loaded module, `open` tells the open flavour from the proprietary one.
    `dkms` lists the versions built for the running kernel, `dkms_added` those that are not. `headers` says
    whether the running kernel's build folder is there. `packages` are the distribution's packages of the
    driver. `messages` are kernel messages that speak of GPUs, cleaned of serial numbers.
    """

    loaded: tuple[str, ...] | None = None
    nvidia_version: str | None = None
    open: bool | None = None
    dkms: tuple[str, ...] | None = None
    dkms_added: tuple[str, ...] | None = None
    headers: bool | None = None
    packages: Mapping[str, str] | None = None
    messages: tuple[str, ...] | None = None
    device_nodes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """What a program that is started here gets. `libraries` maps a library's name to the file found first,
    with links followed: `libcuda.so.1` to `/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05`.

    `toolkits` are the versions of CUDA toolkits below /usr/local. `variables` are the environment variables
    that steer GPUs and engines.
    """

    libraries: Mapping[str, str] | None = None
    toolkits: tuple[str, ...] | None = None
    variables: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """How containers get the GPU here.

    `toolkit` is the version of the NVIDIA Container Toolkit, empty when it is not installed. `runtimes` are
    those that Docker knows. `cdi` maps each CDI file to the driver version that it names. `cgroup_driver`
    is Docker's: systemd or cgroupfs. `char_links` tells whether /dev/char has links for the GPU's nodes.
    `docker_answers` is False when its socket refuses us. `containerd` tells whether its configuration names
    NVIDIA's runtime.
    """

    toolkit: str | None = None
    runtimes: tuple[str, ...] | None = None
    cgroup_driver: str | None = None
    cdi: Mapping[str, str] | None = None
    char_links: bool | None = None
    docker_answers: bool | None = None
    docker_snap: bool | None = None
    rootless: bool | None = None
    containerd: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the system lets a process have, in bytes; -1 is unlimited. `open_files` is the hard limit, to
    which servers raise their own."""

    shared_memory_bytes: int | None = None
    open_files: int | None = None
    memory_lock_bytes: int | None = None
    swap_used_bytes: int | None = None
    container_disk_free_bytes: int | None = None
    temporary_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A model server that listens here. `everywhere` is True when any machine that reaches this one may."""

    program: str
    port: int
    everywhere: bool
    key: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """`rdma` are the devices below /sys/class/infiniband. `busy_ports` are the usual ports of servers that
    somebody listens on."""

    hub_reachable: bool | None = None
    busy_ports: tuple[int, ...] | None = None
    servers: tuple[Listener, ...] | None = None
    rdma: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What stands below the driver. `distribution_id` and `version_id` are those of /etc/os-release.

    `selinux` is enforcing, permissive or disabled; `selinux_booleans` are those about containers that exist.
    `iommu` is True when one translates addresses of devices. `prime` is Ubuntu's choice of the GPU on hybrid
    machines: on, off or on-demand. `laptop` has a battery.
    """

    distribution_id: str | None = None
    version_id: str | None = None
    architecture: str | None = None
    secure_boot: bool | None = None
    selinux: str | None = None
    selinux_booleans: Mapping[str, bool] | None = None
    laptop: bool | None = None
    on_battery: bool | None = None
    prime: str | None = None
    iommu: bool | None = None
    fabric_manager: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`driver_cuda` is the newest CUDA that the driver runs. `gpus` is () on a machine without one.

    `taken` is the day of the picture (2026-11-30). `nvml` says how NVML answered: ok, or why it did not
    (no library, no driver, version mismatch, no permission, unknown error, too slow). `requirements` are
    those of the packages that matter, as they declare them. `unread` says what was cut short, and why.
    """

    os: str | None = None
    distribution: str | None = None
    kernel: str | None = None
    wsl: bool | None = None
    container: bool | None = None
    cpu: Cpu = field(default_factory=Cpu)
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    container_runtimes: tuple[str, ...] | None = None
    driver_version: str | None = None
    driver_cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] | None = None
    taken: str | None = None
    nvml: str | None = None
    adapters: tuple[Adapter, ...] | None = None
    platform: Platform = field(default_factory=Platform)
    modules: Modules = field(default_factory=Modules)
    linker: Linker = field(default_factory=Linker)
    containers: Containers = field(default_factory=Containers)
    limits: Limits = field(default_factory=Limits)
    network: Network = field(default_factory=Network)
    requirements: Mapping[str, tuple[str, ...]] | None = None
    unread: tuple[str, ...] = ()

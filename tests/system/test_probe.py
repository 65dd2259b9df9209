"""The readers, on recorded trees of files and a driver that is played; and what happens when one hangs."""

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from model_optimizer.core import Host, codec
from model_optimizer.core.host import Adapter, Listener, Modules
from model_optimizer.system.probe import World, anonymous, available_memory_bytes, probe
from model_optimizer.system.probe import world as real
from model_optimizer.system.probe.timed import Reader, together

KERNEL = "6.8.0-88-generic"
FILES = {
    "proc/sys/kernel/osrelease": f"{KERNEL}\n",
    "proc/version": f"Linux version {KERNEL} (gcc)",
    "proc/1/cgroup": "0::/init.scope\n",
    "proc/cpuinfo": "model name : Intel(R) Xeon(R)\nflags : fpu avx2 avx512_vnni\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n",
    "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\next4 3 1 - Live 0x0\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n",
    "proc/self/limits": "Max open files            1024                 1048576              files\n"
    "Max locked memory         unlimited            unlimited            bytes\n",
    "proc/net/tcp": "  sl  local_address rem_address   st\n"
    "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n"
    "   1: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4343 1\n",
    "proc/77/cmdline": "python\0/usr/bin/vllm\0serve\0model\0",
    "proc/77/environ": "PATH=/bin\0",
    "proc/77/comm": "nv-fabricmanage\n",
    "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    "etc/prime-discrete": "on-demand\n",
    "etc/docker/daemon.json": '{"runtimes": {"nvidia": {}}, "exec-opts": ["native.cgroupdriver=systemd"]}',
    "etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n- hostPath: /usr/lib/libcuda.so.580.95.05\n",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x28e0\n",
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086\n",
    "sys/bus/pci/devices/0000:02:00.0/device": "0x15f3\n",
    "sys/bus/pci/devices/0000:02:00.0/class": "0x020000\n",
    "sys/class/power_supply/BAT0/type": "Battery\n",
    "sys/class/power_supply/ADP0/type": "Mains\n",
    "sys/class/power_supply/ADP0/online": "0\n",
    "sys/fs/selinux/enforce": "1",
    "sys/fs/selinux/booleans/container_use_devices": "0 0",
    "sys/fs/selinux/booleans/httpd_enable": "1 1",
    "sys/class/infiniband/mlx5_0/node": "",
    "var/lib/dkms/nvidia/580.95.05/6.8.0-88-generic/x86_64/module/nvidia.ko": "",
    "var/lib/dkms/nvidia/570.1.1/6.5.0-1-generic/x86_64/module/nvidia.ko": "",
    "var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\n"
    "Package: nvidia-driver-580-open\nStatus: install ok installed\nSection: x\nVersion: 580.95.05-0ubuntu1\n\n"
    "Package: nvidia-driver-535\nStatus: deinstall ok config-files\nVersion: 535.1\n",
    "usr/local/cuda-13.0/version.json": "{}",
    "dev/nvidia0": "",
    "dev/nvidiactl": "",
    "dev/null": "",
    "site/torch-2.14.0.dist-info/METADATA": "Name: torch\n",
    "site/vllm-0.33.0.dist-info/METADATA": "Name: vllm\nRequires-Dist: torch==2.14.0\n"
    'Requires-Dist: triton>=3; platform_system == "Linux"\nRequires-Dist: click>=8\n\nLong text',
}
SAID = {
    "dmesg": "[    1.0] NVRM: loading NVIDIA UNIX Open Kernel Module\n[    2.0] usb 1-1: new device\n"
    "[    3.0] NVRM: Xid (PCI:0000:01:00): 31, pid=9\n[    4.0] NVRM: Xid (PCI:0000:01:00): 31, pid=9\n",
    "ldconfig": "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
    "\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1\n\tlibz.so.1 (libc6,x86-64) => /z\n",
    "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.18.0\ncommit: x\n",
}


def say(command: Sequence[str], limit_s: float) -> str | None:
    assert limit_s <= 3
    return SAID.get(command[0])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    (tmp_path / "proc/77/fd").mkdir()
    (tmp_path / "proc/77/fd/3").symlink_to("socket:[4242]")
    (tmp_path / f"lib/modules/{KERNEL}").mkdir(parents=True)
    (tmp_path / f"lib/modules/{KERNEL}/build").symlink_to(f"/usr/src/linux-headers-{KERNEL}")
    efi = tmp_path / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    efi.parent.mkdir(parents=True)
    efi.write_bytes(b"\x06\x00\x00\x00\x01")
    return tmp_path


def world(tree: Path, **changes: Any) -> World:
    given = World(
        root=tree,
        home=tree,
        system="Linux",
        machine="x86_64",
        python="3.12.3",
        environ={"CUDA_VISIBLE_DEVICES": "0", "VLLM_API_KEY": "secret", "EDITOR": "vi"},
        sites=(tree / "site",),
        run=say,
        nvml=lambda: None,
        reach=lambda *_: True,
        which=lambda name: f"/usr/bin/{name}" if name in ("docker", "nvidia-ctk") else None,
        disk=lambda _: (1000, 400),
        today=lambda: "2026-11-30",
    )
    return dataclasses.replace(given, **changes)


def test_a_recorded_tree_is_read_whole(tree: Path) -> None:
    host = probe(world(tree))
    assert host.unread == ()
    assert (host.distribution, host.kernel, host.wsl, host.container) == (
        "Ubuntu 24.04.3 LTS", KERNEL, False, False,
    )  # fmt: skip
    assert (host.memory_bytes, host.memory_available_bytes, host.disk_free_bytes) == (1024000, 614400, 400)
    assert host.adapters == (Adapter(vendor="nvidia", device="28e0", kind="display", driver="nvidia"),)
    assert host.modules == Modules(
        loaded=("nvidia", "nvidia_uvm"),
        nvidia_version="580.95.05",
        open=True,
        dkms=("580.95.05",),
        dkms_added=("570.1.1",),
        headers=False,
        packages={"nvidia-driver-580-open": "580.95.05-0ubuntu1"},
        messages=(
            "NVRM: loading NVIDIA UNIX Open Kernel Module",
            "NVRM: Xid (PCI:0000:01:00): 31, pid=9",
        ),
        device_nodes=("nvidia0", "nvidiactl"),
    )
    assert host.linker.libraries == {"libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"}
    assert host.linker.toolkits == ("13.0",)
    assert host.containers.toolkit == "1.18.0" and host.containers.docker_answers is False
    assert host.containers.runtimes == ("nvidia",) and host.containers.cgroup_driver == "systemd"
    assert host.containers.cdi == {"/etc/cdi/nvidia.yaml": "580.95.05"}
    assert host.limits.open_files == 1048576 and host.limits.memory_lock_bytes == -1
    assert host.limits.swap_used_bytes == 61440 and host.limits.shared_memory_bytes is None
    ground = host.platform
    assert ground.secure_boot is True and ground.selinux == "enforcing" and ground.prime == "on-demand"
    assert ground.selinux_booleans == {"container_use_devices": False}
    assert ground.laptop is True and ground.on_battery is True and ground.fabric_manager is True
    assert host.network.busy_ports == (8000,) and host.network.rdma == ("mlx5_0",)
    assert host.network.servers == (Listener(program="vllm", port=8000, everywhere=True, key=False),)
    assert host.packages == {"torch": "2.14.0", "vllm": "0.33.0"}
    assert host.requirements == {"vllm": ("torch==2.14.0",)}
    assert host.gpus == () and host.nvml == "no library"


def test_the_memory_alone_is_read_without_the_rest(tree: Path) -> None:
    def run(*_: object) -> str:
        raise AssertionError("a program was asked")

    assert available_memory_bytes(world(tree, run=run)) == 614400
    (tree / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    (tree / "sys/fs/cgroup/memory.max").write_text("500000\n")
    (tree / "sys/fs/cgroup/memory.current").write_text("100000\n")
    assert available_memory_bytes(world(tree)) == 400000
    (tree / "sys/fs/cgroup/memory.stat").write_text("active_file 7\ninactive_file 30000\n")
    assert available_memory_bytes(world(tree)) == 430000, "cached files give way"
    (tree / "proc/meminfo").unlink()
    assert available_memory_bytes(world(tree)) is None


@pytest.mark.parametrize(
    ("line", "root", "limit", "used"),
    [
        ("0::/user.slice/one", "sys/fs/cgroup", "memory.max", "memory.current"),
        (
            "4:cpu,memory:/user.slice/one",
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ],
)
def test_the_tightest_control_group_around_the_process_counts(
    tree: Path, line: str, root: str, limit: str, used: str
) -> None:
    (tree / "proc/self").mkdir(parents=True, exist_ok=True)
    (tree / "proc/self/cgroup").write_text(f"9:pids:/else\n{line}\n")
    for group, most in (("", "9223372036854771712"), ("user.slice", "300000"), ("user.slice/one", "max")):
        (tree / root / group).mkdir(parents=True, exist_ok=True)
        (tree / root / group / limit).write_text(f"{most}\n")
        (tree / root / group / used).write_text("100000\n")
    assert available_memory_bytes(world(tree)) == 200000
    (tree / root / "user.slice/one" / limit).write_text("150000\n")
    assert available_memory_bytes(world(tree)) == 50000
    (tree / "proc/self/cgroup").write_text(line.replace("/user.slice", "/../.."))
    assert available_memory_bytes(world(tree)) == 614400


def test_no_secret_of_the_environment_is_kept(tree: Path) -> None:
    text = codec.dumps(probe(world(tree)))
    assert "secret" not in text and "EDITOR" not in text
    assert probe(world(tree)).linker.variables == {"CUDA_VISIBLE_DEVICES": "0"}


def test_an_empty_tree_is_unknown_and_nothing_is_broken(tmp_path: Path) -> None:
    host = probe(world(tmp_path, run=lambda *_: None, which=lambda _: None, disk=lambda _: None))
    assert host.unread == ()
    assert host.memory_bytes is None and host.modules.loaded is None and host.kernel is None
    assert host.container is None and host.platform.secure_boot is None and host.platform.selinux is None
    assert host.network.servers is None and host.limits.open_files is None


def test_folders_that_may_not_be_read_are_unknown(tree: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tree / "dev").chmod(0)
    try:
        assert probe(world(tree)).modules.device_nodes is None
    finally:
        (tree / "dev").chmod(0o755)


def test_a_library_path_comes_before_the_linkers_list(tree: Path) -> None:
    compat = tree / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.575.57.08").write_text("")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.575.57.08")
    host = probe(world(tree, environ={"LD_LIBRARY_PATH": "relative::/usr/local/cuda/compat"}))
    assert host.linker.libraries == {"libcuda.so.1": "/usr/local/cuda/compat/libcuda.so.575.57.08"}


def test_wsl_and_its_libcuda(tree: Path) -> None:
    (tree / "proc/version").write_text("Linux version 6.6.87.2-microsoft-standard-WSL2")
    (tree / "usr/lib/wsl/lib").mkdir(parents=True)
    (tree / "usr/lib/wsl/lib/libcuda.so.1").write_text("")
    host = probe(world(tree, run=lambda *_: None))
    assert host.wsl is True
    assert host.linker.libraries == {"libcuda.so.1": "/usr/lib/wsl/lib/libcuda.so.1"}


def test_a_silent_kernel_log_is_one_that_may_not_be_read(tree: Path) -> None:
    assert probe(world(tree, run=lambda *_: "")).modules.messages is None
    journal = "NVRM: loading\nusb 1-1: new device\n"
    said = probe(world(tree, run=lambda command, _: journal if command[0] == "journalctl" else None))
    assert said.modules.messages == ("NVRM: loading",)


@pytest.mark.parametrize(
    ("kinds", "translates"), [([], True), (["identity"], False), (["identity", "DMA-FQ"], True)]
)
def test_an_iommu_that_passes_through_does_not_count(tree: Path, kinds: list[str], translates: bool) -> None:
    assert probe(world(tree)).platform.iommu is False
    (tree / "sys/class/iommu/dmar0").mkdir(parents=True)
    for number, kind in enumerate(kinds):
        place = tree / f"sys/kernel/iommu_groups/{number}/type"
        place.parent.mkdir(parents=True)
        place.write_text(f"{kind}\n")
    assert probe(world(tree)).platform.iommu is translates


def test_docker_tells_its_runtimes(tree: Path) -> None:
    info = '{"ServerVersion": "29", "Runtimes": {"runc": {}, "nvidia": {}}, "CgroupDriver": "cgroupfs", "SecurityOptions": ["name=rootless"]}'
    host = probe(world(tree, run=lambda command, _: info if command[0] == "docker" else None))
    found = host.containers
    assert found.docker_answers is True and found.runtimes == ("nvidia", "runc")
    assert found.cgroup_driver == "cgroupfs" and found.rootless is True


@pytest.mark.parametrize("text", ["", "null", "[1]", "{", '{"ServerVersion": ""}', '"x"'])
def test_strange_answers_of_docker_are_no_answer(tree: Path, text: str) -> None:
    host = probe(world(tree, run=lambda command, _: text if command[0] == "docker" else None))
    assert host.unread == () and host.containers.docker_answers is False


@pytest.mark.parametrize("text", ["[]", "null", '{"runtimes": 5}', '{"exec-opts": 3}', "\x00\xff"])
def test_a_strange_configuration_of_docker_breaks_nothing(tree: Path, text: str) -> None:
    (tree / "etc/docker/daemon.json").write_text(text)
    assert probe(world(tree)).unread == ()


def test_the_hub_is_not_asked_when_offline_or_behind_a_proxy(tree: Path) -> None:
    def reach(*_: object) -> bool:
        raise AssertionError("must not be asked")

    for environ in ({"HF_HUB_OFFLINE": "1"}, {"HTTPS_PROXY": "http://proxy:3128"}):
        host = probe(world(tree, environ=environ, reach=reach), ask_hub=True)
        assert host.network.hub_reachable is None and host.unread == ()


def test_only_the_doctor_asks_the_hub(tree: Path) -> None:
    def reach(*_: object) -> bool:
        raise AssertionError("must not be asked")

    assert probe(world(tree, reach=reach)).network.hub_reachable is None
    assert probe(world(tree), ask_hub=True).network.hub_reachable is True


def test_a_mirror_of_the_hub_is_asked_instead(tree: Path) -> None:
    asked: list[tuple[str, int]] = []

    def reach(name: str, port: int, _limit: float) -> bool:
        asked.append((name, port))
        return False

    host = probe(world(tree, environ={"HF_ENDPOINT": "http://mirror:81"}, reach=reach), ask_hub=True)
    assert host.network.hub_reachable is False
    assert asked == [("mirror", 81)]


def test_a_reader_that_hangs_costs_only_its_answer() -> None:
    stop = threading.Event()
    begun = time.monotonic()
    found, unread = together(
        {
            "hangs": Reader(read=lambda: stop.wait(30), limit_s=0.2, otherwise="nothing"),
            "works": Reader(read=lambda: 7, limit_s=5.0, otherwise=None),
            "breaks": Reader(read=lambda: 1 // 0, limit_s=5.0, otherwise="-"),
        }
    )
    stop.set()
    assert found == {"hangs": "nothing", "works": 7, "breaks": "-"}
    assert unread[0] == "hangs: no answer within 0.2 s" and unread[1].startswith("breaks: ZeroDivisionError")
    assert time.monotonic() - begun < 20


def test_a_driver_that_hangs_is_cut_and_said(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_optimizer.system import probe as package

    monkeypatch.setattr(package, "NVML_LIMIT_S", 0.2)
    stop = threading.Event()
    host = probe(world(tree, nvml=lambda: stop.wait(30) and None))
    stop.set()
    assert host.nvml == "too slow" and host.gpus is None
    assert host.unread == ("nvml: no answer within 0.2 s",)


def test_a_program_that_hangs_is_said_and_costs_only_its_answer(tree: Path) -> None:
    def slow(command: Sequence[str], limit_s: float) -> str | None:
        if command[0] == "docker":
            raise TimeoutError("`docker info`: no answer within 2.5 s")
        return say(command, limit_s)

    host = probe(world(tree, run=slow))
    assert host.unread == ("`docker info`: no answer within 2.5 s",)
    assert host.containers.toolkit == "1.18.0" and host.containers.docker_answers is False


def test_a_program_that_heeds_no_signal_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "stubborn"
    script.write_text("#!/bin/sh\ntrap '' INT TERM HUP\nsleep 300 &\nwait\n")
    script.chmod(0o755)
    with pytest.raises(TimeoutError):
        real.run([str(script)], 0.3)
    until = time.monotonic() + 20
    while time.monotonic() < until and _running(str(script)):
        time.sleep(0.05)
    assert not _running(str(script))


def _running(script: str) -> bool:
    import psutil

    lines = (one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"]))
    return any(script in line for line in lines)


def test_the_limits_add_up_to_less_than_ten_seconds() -> None:
    from model_optimizer.system import probe as package

    limits = [reader.limit_s for reader in package._readers(World()).values()]  # pyright: ignore[reportPrivateUsage]
    assert max(limits) <= 9, "readers run side by side"


def test_a_program_that_takes_too_long_is_stopped() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=r"`sleep 60`: no answer within 0\.2 s"):
        real.run(["sleep", "60"], 0.2)
    assert time.monotonic() - begun < 30
    assert real.run(["no-such-program-here"], 1.0) is None
    assert real.run(["sh", "-c", "exit 3"], 5.0) is None
    assert real.run(["echo", "hello"], 5.0) == "hello\n"


def test_this_machine_can_be_read() -> None:
    host = probe()
    assert host.os and host.python and host.taken
    assert codec.loads(codec.dumps(host), Host) == host


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def nvml(**functions: Any) -> ModuleType:
    """A driver that is played: the functions given, and refusals for all others."""

    def refuse(*_: object) -> None:
        raise NvmlError(3)

    module = ModuleType("nvml")
    module.NVMLError = NvmlError  # type: ignore[attr-defined]
    module.NVML_CLOCK_MEM = 2  # type: ignore[attr-defined]
    module.NVML_NVLINK_MAX_LINKS = 18  # type: ignore[attr-defined]
    for name in (
        "nvmlInit", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount", "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetMaxClockInfo",
    ):  # fmt: skip
        setattr(module, name, functions.get(name, refuse))
    for name, function in functions.items():
        setattr(module, name, function)
    return module


WHOLE = {
    "nvmlInit": lambda: None,
    "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
    "nvmlSystemGetDriverVersion": lambda: "580.95.05",
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda _: "NVIDIA A100-SXM4-40GB",
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=40 << 30, free=39 << 30),
    "nvmlDeviceGetCudaComputeCapability": lambda _: (8, 0),
    "nvmlDeviceGetBAR1MemoryInfo": lambda _: SimpleNamespace(bar1Total=64 << 30),
    "nvmlDeviceGetEccMode": lambda _: (1, 1),
    "nvmlDeviceGetTotalEccErrors": lambda *_: 2,
    "nvmlDeviceGetRemappedRows": lambda _: (0, 1, 1, 0),
    "nvmlDeviceGetMigMode": lambda _: (1, 1),
    "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, index: None if index > 1 else index,
    "nvmlDeviceGetNvLinkState": lambda _, link: 1 if link < 3 else 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 4,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 8,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 4,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x41,
    "nvmlDeviceGetPowerManagementLimit": lambda _: 300000,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 400000,
    "nvmlDeviceGetPersistenceMode": lambda _: 0,
    "nvmlDeviceGetDisplayActive": lambda _: 0,
    "nvmlDeviceGetComputeMode": lambda _: 2,
    "nvmlDeviceGetTemperature": lambda *_: 55,
}


def test_a_gpu_is_described_as_the_driver_tells(tree: Path) -> None:
    host = probe(world(tree, nvml=lambda: nvml(**WHOLE)))
    assert (host.nvml, host.driver_version, host.driver_cuda) == ("ok", "580.95.05", (13, 0))
    (gpu,) = host.gpus or ()
    assert gpu.name == "NVIDIA A100-SXM4-40GB" and gpu.memory_bytes == 40 << 30
    assert (gpu.pcie, gpu.pcie_max, gpu.bar1_bytes) == ("4.0 x8", "4.0 x16", 64 << 30)
    assert (gpu.ecc, gpu.ecc_uncorrected, gpu.remap_pending, gpu.remap_failed) == (True, 2, True, False)
    assert (gpu.mig, gpu.mig_instances) == (True, 2)
    assert (gpu.nvlinks, gpu.nvlinks_up) == (18, 3)
    assert gpu.throttle == ("idle", "hardware_thermal") and gpu.temperature_c == 55
    assert (gpu.power_limit_w, gpu.power_limit_default_w) == (300.0, 400.0)
    assert (gpu.persistence, gpu.display, gpu.compute_mode) == (False, False, "prohibited")
    assert gpu.driver_model is None and gpu.retired_pages is None and gpu.bandwidth_bytes_per_s is None


def test_a_gpu_that_answers_nothing_is_still_there(tree: Path) -> None:
    lost = {**{name: WHOLE[name] for name in ("nvmlInit", "nvmlDeviceGetCount")}}
    host = probe(world(tree, nvml=lambda: nvml(**lost)))
    assert [gpu.name for gpu in host.gpus or ()] == ["GPU 0"]


@pytest.mark.parametrize(
    ("code", "state", "gpus"),
    [
        (12, "no library", ()), (9, "no driver", ()), (18, "version mismatch", None),
        (4, "no permission", None), (999, "unknown error", None), (15, "GPU lost", None), (77, "error 77", None),
    ],
)  # fmt: skip
def test_why_nvml_does_not_start(tree: Path, code: int, state: str, gpus: tuple[()] | None) -> None:
    def init() -> None:
        raise NvmlError(code)

    host = probe(world(tree, nvml=lambda: nvml(nvmlInit=init)))
    assert (host.nvml, host.gpus, host.driver_version) == (state, gpus, None)


def test_what_is_saved_names_nobody() -> None:
    host = Host(
        kernel="6.8.0-88-generic",
        packages={"tensorrt": "11.4.0.106"},
        modules=Modules(
            nvidia_version="580.95.05",
            messages=(
                "db01 kernel: NVRM: GPU at PCI:0000:01:00: GPU-bc0fa0b9-cac2-f507-b715-9bebdb69c71e",
                "NVRM: GPU Board Serial Number: 1650522001234",
                "avc: denied for alice from 10.1.2.3 aa:bb:cc:dd:ee:ff fe80:0:0:0:1:2:3:4 mail alice@example.org",
                "loaded 580.95.05 on 0000:01:00.0",
            ),
        ),
        linker=dataclasses.replace(
            Host().linker,
            libraries={"libcuda.so.1": "/home/alice/compat/libcuda.so.575.57.08"},
            variables={
                "HF_HOME": "/home/alice/hf",
                "VLLM_HOST_IP": "192.168.7.9",
                "LD_LIBRARY_PATH": "/data/bob/lib",
            },
        ),
    )
    text = codec.dumps(anonymous(host, names=("alice", "db01")))
    for word in (
        "alice",
        "db01",
        "bob",
        "bc0fa0b9",
        "1650522001234",
        "10.1.2.3",
        "192.168.7.9",
        "aa:bb",
        "fe80",
        "example.org",
    ):
        assert word not in text, word
    kept = anonymous(host, names=("alice",))
    assert kept.packages == {"tensorrt": "11.4.0.106"} and kept.modules.nvidia_version == "580.95.05"
    assert "580.95.05 on 0000:01:00.0" in (kept.modules.messages or ())[3]
    assert codec.loads(text, Host).kernel == "6.8.0-88-generic"


def test_a_name_that_is_part_of_a_word_stays() -> None:
    host = Host(modules=Modules(messages=("NVRM: nvidia loaded",)))
    assert anonymous(host, names=("nvid",)) == host

"""Every check must survive every recorded machine, and say something useful about it."""

from pathlib import Path

import pytest

from model_optimizer.core import Cpu, Finding, Gpu, Host, codec, plugins
from model_optimizer.core.host import Adapter
from model_optimizer.doctor import examine
from model_optimizer.doctor.run import order
from model_optimizer.testing.contracts import check_contract

CHECKS = plugins.load_all("model_optimizer.doctor.checks")
HOSTS = sorted((Path(__file__).parents[1] / "hosts").glob("*.json"))
HEALTHY = Host(
    python="3.11.9",
    cpu=Cpu(cores=8, features=("avx2", "avx512_vnni")),
    memory_bytes=32 << 30,
    memory_available_bytes=20 << 30,
    disk_free_bytes=100 << 30,
    driver_version="580.65.06",
    driver_cuda=(13, 0),
    gpus=(Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30, compute_capability=(9, 0)),),
)


def statuses(host: Host) -> dict[str, str]:
    return {finding.check: finding.status for finding in examine(host, CHECKS)}


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_keeps_the_contract(name: str) -> None:
    check_contract(name, CHECKS[name])


@pytest.mark.parametrize("path", HOSTS, ids=lambda p: p.stem)
def test_every_check_answers_on_every_recorded_host(path: Path) -> None:
    for finding in examine(codec.load(path, Host), CHECKS):
        assert finding.message, finding.check
        assert finding.status not in ("fail", "warn") or finding.hint, f"{finding.check} gives no hint"


def test_a_healthy_machine_is_healthy_as_far_as_it_is_known() -> None:
    assert set(statuses(HEALTHY).values()) <= {"ok", "unknown", "skipped"}


def test_an_unreadable_machine_never_fails() -> None:
    assert "fail" not in statuses(Host()).values()


@pytest.mark.parametrize(
    ("change", "check", "status"),
    [
        ({"python": "3.10.2"}, "python_supported", "fail"),
        ({"python": "3.14.0"}, "python_supported", "warn"),
        ({"memory_available_bytes": 1 << 30}, "memory_enough", "warn"),
        ({"disk_free_bytes": 1 << 30}, "disk_enough", "warn"),
        ({"cpu": Cpu(features=("avx2",))}, "cpu_vectors", "warn"),
        ({"cpu": Cpu(features=("sse2",))}, "cpu_vectors", "fail"),
        ({"driver_version": None, "gpus": ()}, "driver_present", "warn"),
        ({"gpus": ()}, "gpu_visible", "fail"),
        ({"gpus": None}, "gpu_visible", "unknown"),
    ],
)
def test_a_fault_is_found_by_its_check(change: dict[str, object], check: str, status: str) -> None:
    import dataclasses

    assert statuses(dataclasses.replace(HEALTHY, **change))[check] == status  # pyright: ignore[reportArgumentType]


def test_a_failed_check_silences_those_that_rest_on_it() -> None:
    class Fails:
        AFTER: tuple[str, ...] = ()

        def check(self, host: Host) -> Finding:
            return Finding(status="fail", message="no", hint="mend it")

    class Rests:
        AFTER = ("zzz_first",)

        def check(self, host: Host) -> Finding:
            raise AssertionError("must not run")

    found = examine(Host(), {"aaa_second": Rests(), "zzz_first": Fails()})
    assert [(f.check, f.status) for f in found] == [("zzz_first", "fail"), ("aaa_second", "skipped")]
    assert found[1].message == "waits for `zzz_first`"
    assert found[1].waits_for == "zzz_first"


def test_what_waits_for_a_waiting_check_names_the_root() -> None:
    class Fails:
        AFTER: tuple[str, ...] = ()

        def check(self, host: Host) -> Finding:
            return Finding(status="fail", message="no", hint="mend it")

    class Rests:
        AFTER: tuple[str, ...] = ()

        def check(self, host: Host) -> Finding:
            raise AssertionError("must not run")

    second, third = Rests(), Rests()
    second.AFTER, third.AFTER = ("first",), ("second",)  # pyright: ignore[reportAttributeAccessIssue]
    found = {f.check: f for f in examine(Host(), {"first": Fails(), "second": second, "third": third})}
    assert found["third"].waits_for == "first"


def test_what_is_unknown_or_does_not_arise_holds_nobody_up() -> None:
    class Unknown:
        AFTER: tuple[str, ...] = ()

        def check(self, host: Host) -> Finding:
            return Finding(status="unknown", message="cannot be read")

    class Runs:
        AFTER = ("first",)

        def check(self, host: Host) -> Finding:
            return Finding(status="ok", message="ran")

    assert examine(Host(), {"first": Unknown(), "second": Runs()})[1].status == "ok"


def test_a_crash_in_a_check_is_a_result() -> None:
    class Crashes:
        AFTER: tuple[str, ...] = ()

        def check(self, host: Host) -> Finding:
            raise ZeroDivisionError("oh")

    (found,) = examine(Host(), {"crashes": Crashes()})
    assert found.status == "unknown" and found.evidence == "ZeroDivisionError: oh"


def test_order_respects_what_a_check_comes_after() -> None:
    names = order(CHECKS)
    assert names.index("driver_present") < names.index("gpu_visible")


def changed(name: str, **changes: object) -> dict[str, str]:
    """Statuses on a recorded host with some of its parts replaced; nested ones by `part__field`."""
    import dataclasses

    host = codec.load(Path(__file__).parents[1] / "hosts" / f"{name}.json", Host)
    for path, value in changes.items():
        part, _, field = path.partition("__")
        new = dataclasses.replace(getattr(host, part), **{field: value}) if field else value
        host = dataclasses.replace(host, **{part: new})  # pyright: ignore[reportArgumentType]
    return statuses(host)


def test_a_card_that_is_handed_to_a_virtual_machine_is_not_missed() -> None:
    card = Adapter(vendor="nvidia", device="2684", driver="vfio-pci")
    own = Adapter(vendor="nvidia", device="2330", kind="compute", driver="nvidia")
    assert changed("h100-healthy", adapters=(own, card))["gpu_lost"] == "ok"
    assert changed("h100-healthy", adapters=(own, own))["gpu_lost"] == "fail"
    assert changed("h100-healthy", adapters=(own, own), container=True)["gpu_lost"] == "ok"


def test_an_old_second_card_does_not_condemn_the_driver_of_the_first() -> None:
    old = Adapter(vendor="nvidia", device="128b", driver="nouveau")
    own = Adapter(vendor="nvidia", device="2330", kind="compute", driver="nvidia")
    found = changed("h100-healthy", adapters=(own, old), modules__loaded=("nouveau", "nvidia"))
    assert (found["nouveau_off"], found["module_flavour"], found["gpu_lost"]) == ("ok", "ok", "ok")


def test_secure_boot_is_blamed_only_when_the_kernel_says_so() -> None:
    assert changed("secure-boot-rejection", modules__messages=None)["secure_boot"] == "unknown"
    found = changed("secure-boot-rejection", modules__messages=())
    assert (found["secure_boot"], found["module_loaded"]) == ("ok", "fail")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"container_runtimes": ()}, "skipped"),
        ({"containers__runtimes": ("nvidia", "runc")}, "ok"),
        ({"containers__toolkit": None}, "unknown"),
    ],
)
def test_the_container_toolkit_is_missed_only_where_it_is_needed(
    changes: dict[str, object], status: str
) -> None:
    assert changed("toolkit-missing", **changes)["container_toolkit"] == status


def test_docker_desktop_may_bring_the_toolkit_to_wsl() -> None:
    bare: dict[str, object] = {"containers__toolkit": "", "containers__runtimes": ("runc",)}
    assert changed("wsl2-small-memory", **bare)["container_toolkit"] == "warn"


def test_containerd_may_know_the_runtime_without_docker() -> None:
    bare: dict[str, object] = {"container_runtimes": ("containerd",), "containers__cdi": {}}
    assert changed("podman-only", **bare, containers__containerd=True)["runtime_registered"] == "ok"
    assert changed("podman-only", **bare, containers__containerd=False)["runtime_registered"] == "fail"


def test_the_idle_generation_of_a_link_is_no_fault() -> None:
    import dataclasses

    host = codec.load(Path(__file__).parents[1] / "hosts" / "h100-healthy.json", Host)
    (gpu,) = host.gpus or ()
    for pcie, throttle, status in (
        ("1.0 x16", ("idle",), "ok"), ("1.0 x16", (), "warn"), ("5.0 x8", ("idle",), "warn"),
    ):  # fmt: skip
        one = dataclasses.replace(gpu, pcie=pcie, throttle=throttle)
        assert statuses(dataclasses.replace(host, gpus=(one,)))["pcie_link"] == status


def test_a_branch_ends_with_its_month() -> None:
    assert changed("driver-535", taken="2026-06-30")["driver_branch"] == "ok"
    assert changed("driver-535", taken="2026-07-01")["driver_branch"] == "warn"
    assert changed("driver-535", taken=None)["driver_branch"] == "unknown"


def test_a_driver_that_answers_does_not_contradict_itself() -> None:
    other = {"libnvidia-ml.so.1": "/opt/old/libnvidia-ml.so.570.1.1"}
    assert changed("h100-healthy", linker__libraries=other)["module_matches_library"] == "ok"
    assert changed("api-mismatch", nvml="no driver")["module_matches_library"] == "fail"


def test_cuda_needs_a_node_of_its_own() -> None:
    nodes = ("nvidia0", "nvidiactl")
    found = changed("h100-healthy", modules__device_nodes=nodes)
    assert (found["device_nodes"], found["gpu_visible"]) == ("warn", "ok")


def test_a_client_of_docker_inside_a_container_is_no_fault() -> None:
    found = changed("busy-server", container=True)
    assert found["docker_access"] == "skipped"

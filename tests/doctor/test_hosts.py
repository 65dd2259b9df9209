"""Each recorded host has exactly its findings: the one root, and none of what follows from it."""

from collections import defaultdict
from pathlib import Path

import pytest

from model_optimizer.core import Finding, Host, codec, plugins
from model_optimizer.doctor import LAYERS, examine, read_target
from model_optimizer.doctor.run import order

CHECKS = plugins.load_all("model_optimizer.doctor.checks")
FOLDER = Path(__file__).parents[1] / "hosts"
VLLM = "vllm/vllm-openai:v0.27.1"

# (host, what shall run there or None): the checks that fail, the checks that warn.
CASES: dict[tuple[str, str | None], tuple[str, str]] = {
    ("h100-healthy", None): ("", ""),
    ("rtx4060-laptop", None): ("", ""),
    ("dgx-healthy", None): ("", ""),
    ("two-4090-healthy", None): ("", ""),
    ("container-healthy", None): ("", "ports_free"),
    ("podman-only", None): ("", ""),
    ("toolkit-same-as-driver", None): ("", ""),
    ("no-container-engine", None): ("", ""),
    ("h200", None): ("", ""),
    ("no-gpu", None): ("", "driver_present"),
    # the machine
    ("full-disk", None): ("disk_enough", "container_disk"),
    ("small-machine", None): (
        "cpu_vectors python_supported",
        "disk_enough memory_enough open_files temporary_disk swap_pressure gpu_hardware",
    ),
    ("windows", None): ("", "windows_engine display_on_gpu"),
    ("wsl2-small-memory", None): ("", "wsl_memory display_on_gpu"),
    # hardware and kernel
    ("amd", None): ("gpu_hardware", ""),
    ("prime-off", None): ("hybrid_graphics", ""),
    ("no-driver", None): ("driver_installed", ""),
    ("nouveau", None): ("nouveau_off", ""),
    ("headers-missing", None): ("kernel_headers", ""),
    ("dkms-build-failed", None): ("dkms_built", ""),
    ("secure-boot-rejection", None): ("secure_boot", ""),
    ("pascal-open-modules", None): ("module_flavour", ""),
    ("blackwell-proprietary", None): ("module_flavour", ""),
    ("module-not-loaded", None): ("module_loaded", ""),
    # the driver
    ("api-mismatch", None): ("module_matches_library", ""),
    ("container-without-devices", None): ("device_nodes", ""),
    ("daemon-reload", None): ("container_keeps_devices", ""),
    ("wsl2-without-libcuda", None): ("wsl_libcuda", ""),
    ("wsl2-linux-driver", None): ("wsl_driver_inside", ""),
    ("driver-hangs", None): ("driver_present", ""),
    ("gpu-not-started", None): ("gpu_visible", ""),
    ("dgx-without-fabric-manager", None): ("fabric_manager", ""),
    ("driver-535", None): ("", "driver_branch"),
    ("a100-driver-535", None): ("", "driver_branch"),
    # the GPU
    ("pascal", None): ("gpu_generation", ""),
    ("volta", None): ("", "gpu_generation gpu_formats ecc_enabled persistence cgroup_keeps_devices"),
    ("gpu-lost", None): ("gpu_lost", ""),
    ("ecc-errors", None): ("ecc_errors", ""),
    ("a100-remap-failed", None): ("memory_repairs", ""),
    ("mig-without-instances", None): ("mig_mode", ""),
    ("mig-split", None): ("", "mig_mode"),
    ("compute-prohibited", None): ("compute_mode", ""),
    ("laptop-on-battery", None): ("", "power_source power_limit throttling display_on_gpu"),
    ("two-4090-on-pcie", None): ("shared_memory", "open_files bar1_size pcie_link peer_access"),
    # CUDA and packages
    ("visible-devices-hidden", None): ("visible_devices", ""),
    ("container-utility-only", None): ("driver_capabilities", ""),
    ("compat-shadows-driver", None): ("compat_shadows_driver", ""),
    ("compat-on-a100", None): ("", "driver_branch"),
    ("cuda13-wheel-driver-550", None): ("runtime_fits_driver", ""),
    ("toolkit-newer-than-driver", None): ("", "ptx_fits_driver cudnn_single"),
    ("pins-broken", None): ("package_pins", ""),
    ("onnxruntime-twice", None): ("onnxruntime_single", "torch_build"),
    ("volta-new-vllm", None): ("vllm_on_this_gpu", "gpu_generation gpu_formats"),
    ("volta-tensorrt-11", None): ("tensorrt_on_this_gpu", "gpu_generation gpu_formats"),
    # containers and network
    ("docker-snap", None): ("docker_packaging", ""),
    ("toolkit-missing", None): ("container_toolkit", ""),
    ("runtime-not-registered", None): ("runtime_registered", ""),
    ("cdi-stale", None): ("cdi_current", ""),
    ("cgroup-systemd", None): ("", "cgroup_keeps_devices"),
    ("rocky9-selinux-denial", None): ("selinux_allows", ""),
    ("busy-server", None): (
        "",
        "xid_errors nvlink_up power_limit throttling docker_access hub_reachable ports_free server_exposed "
        "rdma_ready",
    ),
    # what shall run there
    ("h100-healthy", VLLM): ("", ""),
    ("rtx4060-laptop", "tensorrt==11.4"): ("", ""),
    ("driver-535", VLLM): ("target_driver", "driver_branch"),
    ("driver-535", "vllm/vllm-openai:v0.33.0-cu129"): ("", "driver_branch target_ptx"),
    ("h100-healthy", "nvcr.io/nvidia/tensorrt-llm/release:1.2.0"): ("", "target_ptx"),
    ("driver-570", "vllm==0.10.2"): ("", ""),
    ("t4", None): ("", "gpu_formats"),
    ("t4", VLLM): ("", "gpu_formats"),
    ("a100-driver-535", VLLM): ("", "driver_branch target_driver"),
    ("volta", VLLM): (
        "target_gpu",
        "gpu_generation gpu_formats ecc_enabled persistence cgroup_keeps_devices",
    ),
    ("h100-healthy", "vllm==0.26.1"): ("", "target_known"),
    ("container-healthy", "vllm==0.27.1"): ("", "ports_free target_packages"),
    ("no-container-engine", VLLM): ("target_container", ""),
    ("toolkit-missing", VLLM): ("container_toolkit", ""),
    ("windows", "vllm==0.33.0"): ("target_platform", "windows_engine display_on_gpu"),
    ("wsl2-small-memory", "vllm==0.33.0"): ("", "wsl_memory display_on_gpu"),
    ("no-driver", VLLM): ("driver_installed", ""),
    ("no-gpu", "vllm==0.33.0"): ("target_gpu", "driver_present"),
    ("no-gpu", "torch==2.14.0"): ("", "driver_present"),
    ("wsl2-old-kernel", None): ("", "wsl_kernel display_on_gpu"),
    ("driver-570", VLLM): ("target_driver", ""),
    ("a100-driver-570", VLLM): ("", "target_driver"),
}


def host(name: str) -> Host:
    return codec.load(FOLDER / f"{name}.json", Host)


def findings(name: str, target: str | None) -> tuple[Finding, ...]:
    return examine(host(name), CHECKS, read_target(target) if target else None)


def of(status: str, found: tuple[Finding, ...]) -> set[str]:
    return {f.check for f in found if f.status == status}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1] or 'itself'}")
def test_a_host_has_exactly_its_findings(case: tuple[str, str | None]) -> None:
    found = findings(*case)
    fails, warns = CASES[case]
    assert of("fail", found) == set(fails.split())
    assert of("warn", found) == set(warns.split())


def test_every_recorded_host_is_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {name for name, _ in CASES}
    assert len({name for name, _ in CASES}) >= 20


def test_every_check_is_told_apart_by_two_hosts() -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for case in CASES:
        for finding in findings(*case):
            seen[finding.check].add("bad" if finding.status in ("fail", "warn") else finding.status)
    dull = {name: seen[name] for name in CHECKS if not {"bad", "ok"} <= seen[name]}
    assert not dull, "each check needs a host where it speaks up and one where it is content"
    assert len(CHECKS) >= 45


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1] or 'itself'}")
def test_what_is_wrong_comes_with_evidence_a_fix_and_a_source(case: tuple[str, str | None]) -> None:
    for finding in findings(*case):
        assert "has a bug" not in finding.message, finding.evidence
        if finding.status in ("fail", "warn"):
            assert finding.evidence and finding.hint and finding.source, finding.check
            assert len(finding.message) < 200, finding.check


def test_what_waits_names_the_root_that_failed() -> None:
    for case in CASES:
        found = findings(*case)
        roots = {f.waits_for for f in found if f.waits_for}
        assert roots <= of("fail", found), case


def test_a_check_says_where_it_belongs() -> None:
    for name, check in CHECKS.items():
        assert check.LAYER in LAYERS, name
        assert check.SOURCE and all(check.SOURCE), name
        for before in check.AFTER:
            assert before in CHECKS, f"{name} comes after {before}, which is no check"
            assert LAYERS.index(CHECKS[before].LAYER) <= LAYERS.index(check.LAYER), f"{name} after {before}"


def test_the_order_of_checks_has_no_circle() -> None:
    assert sorted(order(CHECKS)) == sorted(CHECKS)


def test_an_empty_picture_of_a_machine_fails_nothing() -> None:
    for target in (None, VLLM, "vllm==0.33.0"):
        found = examine(Host(), CHECKS, read_target(target) if target else None)
        assert not of("fail", found)


def test_half_a_picture_fails_nothing_that_it_does_not_show() -> None:
    """Taking one part after the other out of a host makes answers unknown, never worse."""
    import dataclasses

    whole = host("h100-healthy")
    for field in dataclasses.fields(Host):
        if field.name in ("gpus", "driver_version"):
            continue
        blank = getattr(Host(), field.name)
        found = examine(dataclasses.replace(whole, **{field.name: blank}), CHECKS)
        assert not of("fail", found), field.name


@pytest.mark.parametrize("name", ["amd", "pascal"])
def test_a_gpu_too_old_or_of_amd_is_told_what_does_run(name: str) -> None:
    root = next(f for f in findings(name, None) if f.status == "fail")
    assert "no engine" not in root.message and "llama.cpp" in (root.hint or "")

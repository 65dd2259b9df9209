"""What a recorded host says of a cause, on the hosts of tests/hosts."""

from pathlib import Path

import pytest

from model_optimizer import api
from model_optimizer.core import Host
from model_optimizer.core.diagnosis import Recognized
from model_optimizer.diagnose import correlate, of_text, signature

HOSTS = Path(__file__).parents[1] / "hosts"
EXAMPLE = {one.id: one.body.example.splitlines() for one in signature.load()}
STEPS = ("low", "medium", "high")


def host(name: str) -> Host:
    return api.load_host(HOSTS / f"{name}.json")


def primary(cause: str, at: str | None) -> Recognized | None:
    return of_text(EXAMPLE[cause], host=host(at) if at else None).primary


FOR = [
    ("api-mismatch", "drv-nvml-mismatch", "differ in version"),
    ("api-mismatch", "drv-api-mismatch", "differ in version"),
    ("rocky9-selinux-denial", "dkr-selinux-avc", "SELinux enforces"),
    ("nouveau", "drv-held-by-other", "nouveau holds"),
    ("secure-boot-rejection", "drv-key-rejected", "Secure Boot is on"),
    ("cgroup-systemd", "dkr-nvml-unknown", "cgroups to systemd"),
    ("cdi-stale", "dkr-cdi-stale", "another driver version"),
    ("runtime-not-registered", "dkr-unknown-runtime", "does not know NVIDIA's runtime"),
    ("toolkit-missing", "dkr-no-driver", "no NVIDIA Container Toolkit"),
    ("docker-snap", "dkr-snap", "is a snap"),
    ("dgx-without-fabric-manager", "drv-fabricmanager", "Fabric Manager does not run"),
    ("compat-shadows-driver", "cuda-803", "forward compatibility libcuda"),
    ("headers-missing", "drv-modprobe-missing", "lacks the headers"),
    ("dkms-build-failed", "drv-dkms-build", "not built for the running kernel"),
    ("two-4090-on-pcie", "nccl-acs", "IOMMU"),
    ("two-4090-on-pcie", "dkr-shm-nccl", "/dev/shm is small"),
    ("two-4090-on-pcie", "nccl-ib-memlock", "limits locked memory"),
    ("small-machine", "host-disk-full", "a disk of the host is full"),
    ("small-machine", "host-too-many-files", "few open files"),
    ("ecc-errors", "xid-48", "uncorrected memory errors"),
    ("compute-prohibited", "cuda-busy", "compute mode"),
    ("onnxruntime-twice", "ort-both-packages", "two packages of ONNX Runtime"),
    ("visible-devices-hidden", "cuda-no-device", "hides every GPU"),
    ("mig-split", "cuda-visible-uuid", "MIG is on"),
    ("blackwell-proprietary", "drv-open-required", "proprietary kernel modules"),
]


@pytest.mark.parametrize(("at", "cause", "words"), FOR, ids=[f"{a}-{c}" for a, c, _ in FOR])
def test_a_host_supports_the_cause(at: str, cause: str, words: str) -> None:
    without, with_host = primary(cause, None), primary(cause, at)
    assert without is not None and with_host is not None
    assert without.id == with_host.id == cause
    assert any(words in because for because in with_host.because), with_host.because
    assert without.confidence and with_host.confidence
    raised = STEPS.index(with_host.confidence) - STEPS.index(without.confidence)
    assert raised == (0 if without.confidence == "high" else 1)


AGAINST = [
    ("h100-healthy", "drv-nvml-mismatch", "of one version"),
    ("h100-healthy", "drv-key-rejected", "Secure Boot is off"),
    ("dgx-healthy", "drv-fabricmanager", "Fabric Manager runs"),
    ("h100-healthy", "dkr-unknown-runtime", "knows NVIDIA's runtime"),
]


@pytest.mark.parametrize(("at", "cause", "words"), AGAINST, ids=[f"{a}-{c}" for a, c, _ in AGAINST])
def test_a_host_speaks_against_the_cause(at: str, cause: str, words: str) -> None:
    found = of_text(EXAMPLE[cause], host=host(at))
    if found.primary is not None:
        assert found.primary.confidence == "low", "it is never sure, and what is left comes first"
    shown = found.primary or found.others[0]
    assert any(words in because for because in shown.because)


def test_the_host_decides_between_two_causes() -> None:
    shm, port = EXAMPLE["dkr-shm-nccl"], ["OSError: [Errno 98] Address already in use"]
    assert (found := of_text([*port, *shm]).primary) and found.id == "vllm-port"
    found = of_text([*port, *shm], host=host("two-4090-on-pcie")).primary
    assert found is not None and (found.id, found.confidence) == ("dkr-shm-nccl", "high")


def test_every_fact_about_a_machine_is_told_apart_by_a_recorded_host() -> None:
    hosts = [api.load_host(path) for path in sorted(HOSTS.glob("*.json"))]
    never: list[str] = []
    for name, (fact, _) in correlate.MACHINE_FACTS.items():
        answers = {fact(one, {}) for one in hosts}
        if (True not in answers or answers == {True}) and name != "docker_rootless":
            never.append(name)
    assert never == []

"""Programs that start and work: nothing is named, however alarming some of their lines read."""

from pathlib import Path

import pytest

from model_optimizer import api
from model_optimizer.diagnose import of_file, of_text, signature

from .noise import AFTER

HEALTHY = sorted((Path(__file__).parent / "healthy").glob("*.log"))
HOSTS = Path(__file__).parents[1] / "hosts"
KERNEL = {
    "api-mismatch": "drv-api-mismatch",
    "blackwell-proprietary": "drv-open-required",
    "busy-server": "xid-31",
    "ecc-errors": "xid-48",
    "gpu-lost": "xid-79",
    "gpu-not-started": "drv-bar-invalid",
    "nouveau": "drv-held-by-other",
    "pascal-open-modules": "drv-open-unsupported",
    "rocky9-selinux-denial": "dkr-selinux-avc",
    "secure-boot-rejection": "drv-key-rejected",
}
"""What the kernel messages of a recorded host say; every other host's say nothing."""


def test_there_are_enough() -> None:
    assert len(HEALTHY) >= 15


@pytest.mark.parametrize("log", HEALTHY, ids=lambda p: p.stem)
def test_a_program_that_works_has_no_cause(log: Path) -> None:
    found = of_file(log)
    assert found.primary is None, found.primary.evidence


def test_all_of_them_after_one_another_have_no_cause() -> None:
    assert of_text([line for log in HEALTHY for line in log.read_text().splitlines()]).primary is None


@pytest.mark.parametrize("host", sorted(HOSTS.glob("*.json")), ids=lambda p: p.stem)
def test_the_kernel_messages_of_recorded_hosts(host: Path) -> None:
    lines = api.load_host(host).modules.messages or ()
    primary = of_text(lines).primary
    assert (primary.id if primary else None) == KERNEL.get(host.stem)


def test_each_example_is_found_after_a_start_that_worked() -> None:
    """After the start of a server and its first answers a failure is still the failure."""
    before = next(p for p in HEALTHY if p.stem == "vllm-0.8-two-gpus").read_text().splitlines()
    wrong: list[tuple[str, str | None]] = []
    for one in signature.load():
        if one.head.silent or one.head.kind != "root" or one.head.weight == "symptom":
            continue
        primary = of_text([*before, *["INFO x"] * 50, *one.body.example.splitlines(), *AFTER]).primary
        if primary is None or primary.id != one.id:
            wrong.append((one.id, primary.id if primary else None))
    assert wrong == []

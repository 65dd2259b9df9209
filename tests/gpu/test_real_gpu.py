"""What only a real NVIDIA GPU can show. Needs no index and no environment: `make gpu-test`."""

import time

import pytest

from model_optimizer.core import Host, plugins
from model_optimizer.doctor import examine
from model_optimizer.facts import drivers, gpus
from model_optimizer.system import telemetry
from model_optimizer.system.probe import probe

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def host() -> Host:
    found = probe()
    if not found.gpus:
        pytest.skip("no NVIDIA GPU on this machine")
    return found


def test_every_gpu_is_described(host: Host) -> None:
    for gpu in host.gpus or ():
        assert gpu.memory_bytes and gpu.memory_bytes > 1 << 30
        assert gpu.memory_free_bytes is not None and gpu.memory_free_bytes <= gpu.memory_bytes
        assert gpu.compute_capability and gpu.compute_capability >= (5, 0)
    assert host.driver_version
    assert host.driver_cuda and host.driver_cuda >= (11, 0)


def test_the_facts_know_this_gpu_and_agree_with_it(host: Host) -> None:
    gpu = (host.gpus or ())[0]
    fact = gpus.find(gpu.name)
    assert fact.compute_capability == gpu.compute_capability
    assert gpu.memory_bytes == pytest.approx(fact.memory_bytes, rel=0.08)
    if gpu.bandwidth_bytes_per_s:
        assert gpu.bandwidth_bytes_per_s == pytest.approx(fact.bandwidth_bytes_per_s, rel=0.1)


def test_the_driver_runs_the_cuda_that_it_names(host: Host) -> None:
    assert host.driver_version and host.driver_cuda
    assert drivers.runs(host.driver_version, ".".join(map(str, host.driver_cuda)))


def test_doctor_finds_nothing_wrong_with_driver_and_gpu(host: Host) -> None:
    findings = {f.check: f for f in examine(host, plugins.load_all("model_optimizer.doctor.checks"))}
    assert findings["driver_present"].status == "ok"
    assert findings["gpu_visible"].status == "ok"


def test_energy_comes_from_a_sensor_and_grows_under_load(host: Host) -> None:
    torch = pytest.importorskip("torch")
    meter = telemetry.energy("gpu")
    if meter is None or meter() is None:
        pytest.skip("this GPU has no energy sensor")
    before = meter()
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for _ in range(50):
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        torch.cuda.synchronize()
    after = meter()
    assert before is not None and after is not None
    assert after - before > 10, "two seconds of work take more than ten joules on any GPU with a sensor"
    assert meter.source

"""What NVML tells of a real GPU while it is measured: ten readings a second for five seconds."""

import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from model_optimizer.system import telemetry
from model_optimizer.system.telemetry import Series, Timeline, Watch, What
from model_optimizer.system.telemetry.nvml import QuickGpus, SlowGpus, open_nvml, slowed_by

pytestmark = pytest.mark.gpu
_SECONDS = 5.0

_BUSY = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
size = 1 << 30
memory = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
host = ctypes.create_string_buffer(1 << 26)
print("busy", flush=True)
until = time.monotonic() + 30
while time.monotonic() < until:
    for n in range(50):
        assert cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(n % 251), ctypes.c_size_t(size)) == 0
    assert cuda.cuMemcpyHtoD_v2(memory, host, ctypes.c_size_t(1 << 26)) == 0
    assert cuda.cuCtxSynchronize() == 0
"""


@pytest.fixture(scope="module", autouse=True)
def _a_gpu() -> Iterator[None]:
    nvml = open_nvml()
    if nvml is None:
        pytest.skip("no NVIDIA GPU on this machine")
    yield
    nvml.nvmlShutdown()


@contextmanager
def busy() -> Generator[int]:
    """A process that writes the GPU's memory and copies to it, with nothing but the driver's library."""
    with subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline().strip() == "busy"
            yield child.pid
        finally:
            child.kill()


@pytest.fixture(scope="module")
def recorded() -> tuple[Timeline, float]:
    """Five seconds of a busy GPU, recorded as `mopt bench` records it, and how long that took."""
    with busy(), Watch(What(host=False, kernel=False)) as watch:
        begun = time.monotonic()
        time.sleep(_SECONDS)
        seconds = time.monotonic() - begun
    return watch.timeline, seconds


def series(recorded: tuple[Timeline, float], name: str) -> Series:
    timeline, _ = recorded
    if name not in timeline.series:
        pytest.skip(f"{name}: {timeline.missing.get(name, 'never read')}")
    return timeline.series[name]


@pytest.mark.parametrize(
    "name",
    ["power_w", "sm_clock_mhz", "memory_clock_mhz", "memory_used_bytes", "utilization_percent", "slowed_by"],
)
def test_quick_sensors_are_read_ten_times_a_second(recorded: tuple[Timeline, float], name: str) -> None:
    """A reading that takes longer than its interval is left out, so fewer come; more would be a fault."""
    found, (_, seconds) = series(recorded, f"gpu0.{name}"), recorded
    assert 5 * seconds < len(found.values) <= 10 * seconds + 12
    assert found.times_ns == sorted(found.times_ns)


def test_power_and_the_energy_counter_agree(recorded: tuple[Timeline, float]) -> None:
    """The counter is the truth; integrated power is what older GPUs get instead."""
    power, energy = series(recorded, "gpu0.power_w"), series(recorded, "gpu0.energy_j")
    begin, end = energy.times_ns[5], energy.times_ns[-5]
    counted, integrated = energy.rise(begin, end), power.integral(begin, end)
    assert counted is not None and integrated is not None and counted > 0
    print(f"energy counter {counted:.1f} J, integrated power {integrated:.1f} J")  # noqa: T201
    assert integrated == pytest.approx(counted, rel=0.25)
    assert energy.values == sorted(energy.values), "a counter does not go back"
    assert 5 < max(power.values) < 3000


def test_a_busy_gpu_looks_busy(recorded: tuple[Timeline, float]) -> None:
    assert max(series(recorded, "gpu0.utilization_percent").values) > 50
    assert max(series(recorded, "gpu0.memory_used_bytes").values) > 1 << 30
    assert 0 < max(series(recorded, "gpu0.sm_clock_mhz").values) < 5000


def test_slow_sensors_are_read_once_a_second(recorded: tuple[Timeline, float]) -> None:
    found, (_, seconds) = series(recorded, "gpu0.temperature_c"), recorded
    assert seconds / 2 < len(found.values) <= seconds + 3
    assert 10 < max(found.values) < 110


def test_pcie_carries_what_is_copied_to_the_gpu(recorded: tuple[Timeline, float]) -> None:
    received = series(recorded, "gpu0.pcie_rx_bytes_per_s")
    assert max(received.values) > 1 << 20
    assert min(series(recorded, "gpu0.pcie_tx_bytes_per_s").values) >= 0


def test_processes_are_counted(recorded: tuple[Timeline, float]) -> None:
    """In a container NVML may see none of them; then the sensor tells 0."""
    assert max(series(recorded, "gpu0.processes").values) >= 0


def test_reasons_for_slow_clocks_have_words(recorded: tuple[Timeline, float]) -> None:
    bits = {int(v) for v in series(recorded, "gpu0.slowed_by").values}
    assert all(isinstance(word, str) for b in bits for word in slowed_by(b))
    print({b: slowed_by(b) for b in bits})  # noqa: T201


def test_every_sensor_answers_or_says_why_not(recorded: tuple[Timeline, float]) -> None:
    timeline, _ = recorded
    names = {
        "power_w",
        "energy_j",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "memory_used_bytes",
        "utilization_percent",
    }
    names |= {"memory_utilization_percent", "slowed_by", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"}
    names |= {
        "nvlink_tx_bytes",
        "nvlink_rx_bytes",
        "ecc_corrected",
        "ecc_uncorrected",
        "temperature_c",
        "processes",
    }
    known = {n.partition(".")[2] for n in timeline.series if n.startswith("gpu0.")}
    excused = {n.partition(".")[2] for n in timeline.missing if n.startswith("gpu0.")}
    print({n: timeline.missing[f"gpu0.{n}"] for n in sorted(excused)})  # noqa: T201
    assert names == known | excused
    assert not any("TypeError" in why or "argument" in why for why in timeline.missing.values())
    assert timeline.fatal is None


def test_a_reading_is_quick_enough() -> None:
    """What one round of readings costs: it must fit into its interval many times over to disturb nothing."""
    nvml = open_nvml()
    for source in (QuickGpus(nvml), SlowGpus(nvml)):
        source.read(0)
        begun, spent = time.perf_counter(), time.process_time()
        for _ in range(10):
            source.read(0)
        wall, cpu = (time.perf_counter() - begun) / 10, (time.process_time() - spent) / 10
        print(f"{source.name}: {wall * 1e3:.2f} ms, {cpu * 1e3:.2f} ms of CPU a round")  # noqa: T201
        assert wall < source.interval_s


def test_the_meter_of_all_gpus_counts_up() -> None:
    meter = telemetry.gpu_energy()
    assert meter is not None and "NVML" in meter.source
    before = meter()
    time.sleep(1)
    after = meter()
    assert before is not None and after is not None and after > before

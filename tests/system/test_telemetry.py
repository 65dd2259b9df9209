"""Energy and memory readers, on recorded sensors."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from model_optimizer.core import UsageError
from model_optimizer.system import telemetry


def zone(folder: Path, name: str, title: str, energy: str = "0", wide: str = "1000000000") -> Path:
    place = folder / name
    place.mkdir()
    (place / "name").write_text(f"{title}\n")
    (place / "energy_uj").write_text(f"{energy}\n")
    (place / "max_energy_range_uj").write_text(f"{wide}\n")
    return place / "energy_uj"


class TestPackages:
    def test_packages_add_up_and_parts_do_not_count_again(self, tmp_path: Path) -> None:
        first = zone(tmp_path, "intel-rapl:0", "package-0", "5000000")
        second = zone(tmp_path, "intel-rapl:1", "package-1", "7000000")
        zone(tmp_path, "intel-rapl:0:0", "core")
        zone(tmp_path, "intel-rapl:2", "psys")
        meter = telemetry.package_energy(tmp_path)
        assert meter is not None and meter.source == "RAPL counter of 2 processor packages"
        begin = meter()
        first.write_text("6500000")
        second.write_text("8000000")
        assert meter() - begin == pytest.approx(2.5)

    def test_a_counter_that_wraps_goes_on(self, tmp_path: Path) -> None:
        file = zone(tmp_path, "intel-rapl:0", "package-0", "9000000", wide="10000000")
        meter = telemetry.package_energy(tmp_path)
        begin = meter()
        file.write_text("500000")
        assert meter() - begin == pytest.approx(1.5)

    @pytest.mark.parametrize("energy", ["", "secret"])
    def test_what_cannot_be_read_is_no_meter(self, tmp_path: Path, energy: str) -> None:
        zone(tmp_path, "intel-rapl:0", "package-0", energy)
        assert telemetry.package_energy(tmp_path) is None
        assert telemetry.package_energy(tmp_path / "none") is None

    def test_a_sensor_that_stops_answering_reads_none(self, tmp_path: Path) -> None:
        file = zone(tmp_path, "intel-rapl:0", "package-0")
        meter = telemetry.package_energy(tmp_path)
        file.unlink()
        assert meter() is None


class NvmlError(Exception):
    pass


def nvml(*, count: int = 2, energy: object = 5000, power: object = 100_000) -> ModuleType:
    """NVML as it answers on a machine with `count` GPUs; an exception is raised instead of returned."""

    def answer(value: object):
        def ask(*_: object) -> object:
            if isinstance(value, Exception):
                raise value
            return value

        return ask

    module = ModuleType("pynvml")
    module.NVMLError = NvmlError
    module.nvmlInit = answer(None)
    module.nvmlDeviceGetCount = answer(count)
    module.nvmlDeviceGetHandleByIndex = answer("handle")
    module.nvmlDeviceGetTotalEnergyConsumption = answer(energy)
    module.nvmlDeviceGetPowerUsage = answer(power)
    return module


class TestGpus:
    def use(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", module)

    def test_counters_add_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.use(monkeypatch, nvml())
        meter = telemetry.energy()
        assert (meter(), meter.source) == (10, "NVML energy counter of 2 GPUs")

    def test_without_counters_power_is_integrated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.use(monkeypatch, nvml(count=1, energy=NvmlError()))
        meter = telemetry.gpu_energy()
        assert meter.source == "NVML power of 1 GPU, integrated"
        assert meter() >= 0

    @pytest.mark.parametrize("module", [None, nvml(count=0), nvml(energy=NvmlError(), power=NvmlError())])
    def test_no_gpu_or_no_sensor(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
        self.use(monkeypatch, module)
        assert telemetry.gpu_energy() is None
        assert telemetry.energy("gpu") is None

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = nvml()
        module.nvmlInit = lambda: (_ for _ in ()).throw(NvmlError())
        self.use(monkeypatch, module)
        assert telemetry.gpu_energy() is None

    def test_the_processor_stands_in_or_is_asked_for(self, monkeypatch, tmp_path: Path) -> None:
        zone(tmp_path, "intel-rapl:0", "package-0")
        self.use(monkeypatch, None)
        assert telemetry.energy(powercap=tmp_path).source == "RAPL counter of 1 processor package"
        self.use(monkeypatch, nvml())
        assert telemetry.energy("cpu", powercap=tmp_path).source == "RAPL counter of 1 processor package"


def test_power_is_integrated_by_trapezoids() -> None:
    readings = iter([(0.0, 100.0), (2.0, 200.0), (3.0, None), (4.0, 200.0)])
    now = [0.0]

    def watts() -> float | None:
        now[0], value = next(readings)
        return value

    integral = telemetry.Integral(watts, lambda: now[0])
    assert [integral.joules() for _ in range(4)] == [0, 300, None, 700]


def test_memory_of_a_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        meter = telemetry.memory(child.pid)
        assert meter() > 1_000_000
        assert "set size" in meter.source
    finally:
        child.communicate(b"\n")
    with pytest.raises(UsageError):
        telemetry.memory(child.pid)

"""What is recorded beside a load: sensors that are there, missing, or fail; engines' pages; the kernel log."""

import inspect
import json
import os
import sys
import threading
import time
from pathlib import Path

import pynvml
import pytest

from model_optimizer.facts import metrics
from model_optimizer.system import telemetry
from model_optimizer.system.telemetry import engine, host, kernel, nvml, timeline
from model_optimizer.testing.fake_nvml import FakeGpu, FakeNvml, shim

VLLM_PAGE = """\
# HELP vllm:kv_cache_usage_perc KV-cache usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a b{c}"} 2.0
vllm:num_preemptions_total{engine="0"} 7.0
vllm:request_queue_time_seconds_bucket{le="0.3",engine="0"} 9.0
vllm:request_queue_time_seconds_sum{engine="0"} 1.5
vllm:request_queue_time_seconds_count{engine="0"} 10
vllm:generation_tokens_total{engine="0"} 1e3
process_resident_memory_bytes 1.0e9
process_start_time_seconds 1.7e9
garbage
vllm:broken notanumber
"""


NVML_CALLS = (
    ("nvmlDeviceGetPowerUsage", 1),
    ("nvmlDeviceGetTotalEnergyConsumption", 1),
    ("nvmlDeviceGetClockInfo", 2),
    ("nvmlDeviceGetMemoryInfo", 1),
    ("nvmlDeviceGetUtilizationRates", 1),
    ("nvmlDeviceGetCurrentClocksEventReasons", 1),
    ("nvmlDeviceGetPcieThroughput", 2),
    ("nvmlDeviceGetFieldValues", 2),
    ("nvmlDeviceGetTotalEccErrors", 3),
    ("nvmlDeviceGetTemperature", 2),
    ("nvmlDeviceGetComputeRunningProcesses", 1),
)


@pytest.mark.parametrize(("call", "arguments"), NVML_CALLS)
def test_nvml_is_called_as_nvidia_ml_py_wants_it(call: str, arguments: int) -> None:
    """Wrong arguments would look like a sensor that is missing. The fake one must not allow more."""
    for module in (pynvml, FakeNvml([])):
        signature = inspect.signature(getattr(module, call))
        signature.bind(*range(arguments))
        with pytest.raises(TypeError):
            signature.bind()


def test_numbers_of_nvml_are_those_of_nvidia_ml_py() -> None:
    assert (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX) == (
        138,
        139,
    )
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (1, 2)
    assert (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES) == (0, 1)
    assert (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC) == (1, 0)
    assert pynvml.NVML_TEMPERATURE_GPU == 0
    named = {n: v for n, v in vars(pynvml).items() if n.startswith("nvmlClocksThrottleReason")}
    bits = {v for n, v in named.items() if not n.endswith(("All", "None"))}
    assert bits == set(nvml.SLOWED_BY)


class TestGpus:
    def test_every_quick_sensor_has_a_unit(self) -> None:
        gpu = FakeGpu(power_w=250, energy_j=1000, slowed_by=0x44, memory_used_bytes=5 << 30)
        found = nvml.QuickGpus(FakeNvml([gpu, FakeGpu()])).read(0)
        assert found["gpu0.power_w"] == 250
        assert found["gpu0.energy_j"] == pytest.approx(1000, abs=20)
        assert found["gpu0.memory_used_bytes"] == 5 << 30
        assert found["gpu1.utilization_percent"] == 50
        assert nvml.slowed_by(int(found["gpu0.slowed_by"])) == [
            "software power cap",
            "hardware thermal slowdown",
        ]

    def test_idle_and_chosen_clocks_slow_nothing(self) -> None:
        assert nvml.slowed_by(0x1 | 0x2) == []

    def test_a_missing_sensor_is_said_once_and_asked_once(self) -> None:
        fake = FakeNvml([FakeGpu(power_w=None)])
        gpus = nvml.QuickGpus(fake)
        for _ in range(3):
            found = gpus.read(0)
        assert "gpu0.power_w" not in found and "gpu0.sm_clock_mhz" in found
        assert fake.asked.count("power_w") == 1
        assert gpus.missing()["gpu0.power_w"] == "not available: Not Supported"

    def test_slow_sensors(self) -> None:
        found = nvml.SlowGpus(FakeNvml([FakeGpu(nvlink_kib=2, pcie_kb_per_s=7)])).read(0)
        assert found["gpu0.nvlink_tx_bytes"] == 2048
        assert found["gpu0.pcie_rx_bytes_per_s"] == 7000
        assert found["gpu0.temperature_c"] == 60 and found["gpu0.processes"] == 1

    def test_a_new_uncorrectable_error_is_fatal_and_an_old_one_is_not(self) -> None:
        gpu = FakeGpu(ecc_uncorrected=3)
        gpus = nvml.SlowGpus(FakeNvml([gpu]))
        gpus.read(0)
        assert gpus.events() == []
        gpu.ecc_uncorrected = 5
        gpus.read(7)
        (event,) = gpus.events()
        assert (event.kind, event.fatal, event.time_ns) == ("ecc", True, 7)
        assert "2 uncorrectable" in event.text
        gpus.read(8)
        assert gpus.events() == []

    def test_a_lost_gpu_is_fatal_and_said_once(self) -> None:
        gpu = FakeGpu()
        gpus = nvml.QuickGpus(FakeNvml([gpu, FakeGpu()]))
        gpus.read(0)
        gpu.lost = True
        found = gpus.read(1)
        assert [e.kind for e in gpus.events()] == ["gpu-lost"]
        assert not any(name.startswith("gpu0.") for name in found)
        assert "gpu1.power_w" in gpus.read(2)

    def test_no_driver_is_no_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([], driver=False))
        assert nvml.open_nvml() is None


class TestEngines:
    def test_ranks_add_up_and_shares_take_the_largest(self) -> None:
        name, found = engine.quantities(VLLM_PAGE)
        assert name == "vllm"
        assert found["engine.kv_usage"] == 0.5
        assert found["engine.running"] == 7
        assert found["engine.waiting"] == 2
        assert found["engine.preemptions"] == 7
        assert (found["engine.queue_s_sum"], found["engine.queue_s_count"]) == (1.5, 10)
        assert found["engine.output_tokens"] == 1000
        assert found["server.rss_bytes"] == 1e9

    @pytest.mark.parametrize(
        ("page", "name", "usage"),
        [
            ("vllm:gpu_cache_usage_perc 0.1", "vllm", 0.1),
            ('sglang:token_usage{model_name="m"} 0.28', "sglang", 0.28),
            ("trtllm_kv_cache_utilization 0.62", "tensorrt_llm", 0.62),
            ("llamacpp:kv_cache_usage_ratio 0.4", "llama_cpp", 0.4),
        ],
    )
    def test_every_engine_has_its_own_names(self, page: str, name: str, usage: float) -> None:
        assert engine.quantities(page) == (name, {"engine.kv_usage": usage})

    @pytest.mark.parametrize("page", ["", "{}", "<html>", "a" * 10_000, 'x{a="1" 3', "\x00 1", "vllm:x NaN"])
    def test_a_page_of_something_else_says_nothing(self, page: str) -> None:
        _, found = engine.quantities(page)
        assert found == {}

    def test_names_change_with_releases(self) -> None:
        old, new = (
            {m.name for m in metrics.of("vllm") if m.quantity == "kv_usage" and m.holds_in(v)}
            for v in ("0.8.5", "0.25.1")
        )
        assert (old, new) == ({"vllm:gpu_cache_usage_perc"}, {"vllm:kv_cache_usage_perc"})

    def test_a_server_without_metrics_is_not_asked_for_ever(self) -> None:
        source = engine.EngineMetrics("http://127.0.0.1:9")
        for _ in range(5):
            assert source.read(0) == {}
        assert "not available" in source.missing()["engine metrics"]
        assert "--enable-metrics" in source.missing()["engine metrics"]
        assert source.events() == []

    def test_a_restart_and_a_silence_are_events(self, monkeypatch: pytest.MonkeyPatch) -> None:
        source = engine.EngineMetrics("http://127.0.0.1:9")
        pages = iter([{"server.started_s": 100.0}, None, None, {"server.started_s": 200.0}])
        monkeypatch.setattr(source, "_ask", lambda path: next(pages))
        for now in range(4):
            source.read(now)
        kinds = [(e.kind, e.time_ns) for e in source.events()]
        assert kinds == [("server-silent", 1), ("server-back", 3), ("server-restarted", 3)]


class TestKernel:
    def test_a_fatal_xid(self) -> None:
        event = kernel.xid("NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.", 5)
        assert event is not None and event.fatal and event.time_ns == 5
        assert event.text == "Xid 79 on PCI:0000:06:00: the GPU fell off the bus"

    def test_one_of_a_program_ends_nothing(self) -> None:
        event = kernel.xid("NVRM: Xid (PCI:0000:06:00): 31, pid=2104, MMU Fault", 5)
        assert event is not None and not event.fatal

    def test_an_unknown_one_ends_nothing(self) -> None:
        event = kernel.xid("NVRM: Xid (PCI:0000:06:00): 999, something", 5)
        assert event is not None and not event.fatal

    def test_the_kernel_s_own_time_is_taken(self) -> None:
        ago = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - 2_000_000_000) // 1000
        now = time.perf_counter_ns()
        event = kernel.xid(f"4,1,{ago},-;NVRM: Xid (PCI:0): 13, x", now)
        assert event is not None
        assert 1.9e9 < now - event.time_ns < 3e9

    def test_a_log_that_may_not_be_read(self, tmp_path: Path) -> None:
        log = kernel.KernelLog(tmp_path / "none")
        assert log.read(0) == {}
        assert "not available" in log.missing()["kernel log"]

    def test_only_what_comes_after_the_beginning_counts(self, tmp_path: Path) -> None:
        file = tmp_path / "kmsg"
        file.write_text("4,1,1,-;NVRM: Xid (PCI:0): 79, old\n")
        log = kernel.KernelLog(file)
        with file.open("a") as stream:
            stream.write("4,2,2,-;NVRM: Xid (PCI:0): 48, new\n4,3,3,-;usb 1-1: new device\n")
        log.read(9)
        assert [e.text for e in log.events()] == ["Xid 48 on PCI:0: an uncorrectable ECC error"]
        log.close()


class TestHost:
    def test_a_machine_has_load_and_memory(self) -> None:
        found = host.HostLoad().read(0)
        assert found["host.memory_used_bytes"] > 1e6
        assert found["host.cpu_percent"] >= 0

    def test_a_process_has_memory_and_files(self) -> None:
        found = host.ServerProcess(os.getpid()).read(0)
        assert found["server.rss_bytes"] > 1e6
        assert found["server.open_files"] >= 1

    def test_a_process_that_is_not_there(self) -> None:
        source = host.ServerProcess(2**22 + 12345)
        assert source.read(0) == {}
        assert "no process" in source.missing()["server process"]


class FakeSource:
    def __init__(self, interval_s: float) -> None:
        self.name, self.interval_s, self.reads = "fake", interval_s, 0

    def read(self, now_ns: int) -> dict[str, float]:
        self.reads += 1
        return {"fake.reads": float(self.reads)}

    def events(self):
        return ()

    def missing(self):
        return {}

    def close(self) -> None:
        pass


def test_each_source_is_read_at_its_own_interval_on_a_virtual_clock() -> None:
    now = [0]
    quick, slow, samples = FakeSource(0.1), FakeSource(1.0), []

    def wait(stop: threading.Event, seconds: float) -> bool:
        now[0] += round(seconds * 1e9)
        return now[0] >= 10_000_000_000

    recorder = telemetry.Recorder(
        [quick, slow], sample=lambda t, v: samples.append(t), event=print, clock=lambda: now[0], wait=wait
    )
    recorder.run(threading.Event())
    assert (quick.reads, slow.reads) == (101, 11)  # and once more at the end
    assert samples == sorted(samples)


def test_a_slow_source_skips_and_does_not_catch_up() -> None:
    now = [0]
    source = FakeSource(0.1)
    read = source.read

    def slow(now_ns: int) -> dict[str, float]:
        now[0] += 350_000_000
        return read(now_ns)

    source.read = slow

    def wait(stop: threading.Event, seconds: float) -> bool:
        now[0] += round(seconds * 1e9)
        return now[0] >= 2_000_000_000

    recorder = telemetry.Recorder(
        [source], sample=lambda t, v: None, event=print, clock=lambda: now[0], wait=wait
    )
    recorder.run(threading.Event())
    assert source.reads <= 7


class TestTimeline:
    series = telemetry.Series(times_ns=[0, 1_000_000_000, 2_000_000_000], values=[0.0, 100.0, 100.0])

    def test_power_becomes_energy(self) -> None:
        assert self.series.integral(0, 2_000_000_000) == 150
        assert self.series.integral(500_000_000, 1_500_000_000) == pytest.approx(37.5 + 50)
        assert self.series.integral(-1, 5) is None

    def test_a_counter_that_began_again_is_unknown(self) -> None:
        assert telemetry.Series(times_ns=[0, 10], values=[5.0, 1.0]).rise(0, 10) is None
        assert self.series.rise(0, 1_000_000_000) == 100

    def test_a_cut_off_file_is_read_as_far_as_it_goes(self, tmp_path: Path) -> None:
        file = tmp_path / "x"
        event = telemetry.Event(time_ns=3, kind="xid", text="t", fatal=True)
        whole = timeline.encode(1, {"a.b": 2.0}) + timeline.encode_event(event) + b"\xff\n[]\n"
        file.write_bytes(whole + timeline.encode(4, {"a.b": 1.0})[:-8])
        found = timeline.load(file)
        assert list(found.series["a.b"].values) == [2.0]
        assert found.fatal == event


class TestWatch:
    def test_a_process_records_while_we_do_something_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = shim(tmp_path, [FakeGpu(power_w=200)])
        monkeypatch.setenv("PYTHONPATH", str(path))
        with telemetry.Watch(telemetry.What(pid=os.getpid(), kernel=False)) as watch:
            begin = time.perf_counter_ns()
            while "gpu0.power_w" not in watch.timeline.series:
                time.sleep(0.05)
        found = watch.timeline
        power = found.series["gpu0.power_w"]
        assert set(power.values) == {200.0}
        assert power.times_ns[0] >= begin - 5e9 and power.times_ns[-1] <= time.perf_counter_ns()
        assert found.series["server.rss_bytes"].values[0] > 1e6
        assert "gpu0.nvlink_tx_bytes" in found.missing
        assert found.fatal is None

    def test_a_memory_error_of_the_gpu_is_told_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(shim(tmp_path, [FakeGpu(ecc_after_s=0.5)])))
        told = threading.Event()
        what = telemetry.What(host=False, kernel=False)
        with telemetry.Watch(what, on_fatal=lambda event: told.set()) as watch:
            assert told.wait(20)
        assert watch.fatal is not None and watch.fatal.kind == "ecc"
        assert watch.timeline.fatal is not None

    def test_without_gpu_or_rights_everything_is_said_to_be_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(shim(tmp_path, [])))
        with telemetry.Watch(telemetry.What(host=False, kernel=False)) as watch:
            pass
        assert watch.timeline.missing == {"gpu": "not available: no NVIDIA driver answers"}

    def test_a_recording_process_that_cannot_start_costs_the_telemetry_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with telemetry.Watch(telemetry.What()) as watch:
            pass
        assert "wrote nothing" in watch.timeline.missing["telemetry"]

    def test_one_that_hangs_is_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(60)\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(telemetry.watch, "_BEGIN_S", 0.5)
        monkeypatch.setattr(telemetry.watch, "_END_S", 0.5)
        begin = time.monotonic()
        with telemetry.Watch(telemetry.What()) as watch:
            pass
        assert time.monotonic() - begin < 20
        assert watch.timeline.series == {}


def test_the_shim_is_json(tmp_path: Path) -> None:
    text = (shim(tmp_path, [FakeGpu()]) / "pynvml.py").read_text()
    assert json.dumps("power_w")[1:-1] in text

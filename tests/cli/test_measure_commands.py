"""`mopt soak`, `mopt compare` and `mopt report` as they are typed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from model_optimizer.core import LoadPoint, Measurement, Percentiles, codec
from model_optimizer.testing.fake_nvml import FakeGpu, shim

VLLM = Path(__file__).parents[1] / "data/bench/vllm-bench-0.32-detailed.json"


def mopt(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "model_optimizer", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def started(*words: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "model_optimizer", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def server():
    command = [sys.executable, "-m", "model_optimizer.testing.soak_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.kill()


def written(path: Path, speed: float = 1.0) -> Path:
    times = Percentiles(p50=100 / speed, p90=120 / speed, p99=150 / speed, mean=100 / speed, sd=10.0)
    point = LoadPoint(
        target="concurrency 8",
        concurrency=8,
        completed=900,
        failed=0,
        window_s=30,
        requests_per_s=30 * speed,
        ttft_ms=times,
        e2e_ms=times,
    )
    path.write_text(codec.dumps(Measurement(points=(point,), model="m")))
    return path


class TestTelemetry:
    """`mopt bench` on a machine whose GPUs are made up."""

    def bench(
        self, server: str, folder: Path, gpu: FakeGpu, *words: str
    ) -> "subprocess.CompletedProcess[str]":
        shim(folder, [gpu])
        return subprocess.run(
            [sys.executable, "-m", "model_optimizer", "bench", server, "--api", "completions", *words],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )

    def test_energy_idle_power_and_the_timeline_are_in_the_answer(self, server: str, tmp_path: Path) -> None:
        done = self.bench(
            server, tmp_path, FakeGpu(power_w=200), "--concurrency", "4", "--for", "2s", "--json"
        )
        found = json.loads(done.stdout)
        block = found["telemetry"]
        assert done.returncode == 0 and block["idle_power_w"] == 200
        assert block["machine"].endswith("1 x NVIDIA Fake")
        (load,) = block["loads"]
        assert load["energy"]["source"] == "NVML energy counter"
        assert load["energy"]["power_w"] == pytest.approx(200, rel=0.05)
        assert load["energy"]["j_per_token"] > 0 and load["energy"]["j_per_request"] > 0
        assert {"gpu0.power_w", "engine.kv_usage", "client.in_flight", "host.cpu_percent"} <= block[
            "series"
        ].keys()
        assert len(load["quantiles"]["ttft_ms"]) == 51
        assert load["queue"]["verdict"] == "fair"

    def test_a_memory_error_ends_the_run_and_marks_it_invalid(self, server: str, tmp_path: Path) -> None:
        begin = time.monotonic()
        gpu = FakeGpu(ecc_after_s=3)
        done = self.bench(server, tmp_path, gpu, "--concurrency", "4", "--for", "90s", "--json")
        found = json.loads(done.stdout)
        assert done.returncode == 1 and time.monotonic() - begin < 80
        assert found["invalid"].startswith("ecc: gpu0")
        assert not found["interrupted"], "it was not the user who ended it"

    def test_it_can_be_left_out(self, server: str, tmp_path: Path) -> None:
        done = self.bench(server, tmp_path, FakeGpu(), "--requests", "8", "--no-telemetry", "--json")
        assert "series" not in json.loads(done.stdout)["telemetry"]


class TestCompare:
    def test_it_ends_a_build_when_b_is_worse(self, tmp_path: Path) -> None:
        a, b = written(tmp_path / "a.json"), written(tmp_path / "b.json", 0.5)
        worse = mopt("compare", a, b)
        assert worse.returncode == 1 and worse.stdout.startswith("B is WORSE")
        assert mopt("compare", b, a).returncode == 0
        assert mopt("compare", a, a).returncode == 0
        assert mopt("compare", a, a, "--strict").returncode == 1

    def test_json_is_the_noun(self, tmp_path: Path) -> None:
        a, b = written(tmp_path / "a.json"), written(tmp_path / "b.json", 0.5)
        found = json.loads(mopt("compare", a, b, "--json").stdout)
        assert found["schema"] == "compare_result/1" and found["verdict"] == "worse"
        assert {"metric", "load", "a", "b", "ratio", "interval", "verdict"} <= found["changes"][0].keys()

    def test_a_folder_is_several_runs(self, tmp_path: Path) -> None:
        for side, speeds in (("a", (1, 1.01, 0.99, 1.005)), ("b", (0.9, 0.91, 0.89, 0.905))):
            (tmp_path / side).mkdir()
            for number, speed in enumerate(speeds):
                written(tmp_path / side / f"{number}.json", speed)
        done = mopt("compare", tmp_path / "a", tmp_path / "b")
        assert done.returncode == 1 and "assumed" not in done.stdout and "4 and 4 runs" in done.stdout

    def test_what_is_not_comparable_is_refused(self, tmp_path: Path) -> None:
        a = written(tmp_path / "a.json")
        other = codec.load(a, Measurement)
        (tmp_path / "b.json").write_text(codec.dumps(replace(other, model="other")))
        done = mopt("compare", a, tmp_path / "b.json")
        assert done.returncode == 2 and "models differ: m and other" in done.stderr
        assert mopt("compare", a, tmp_path / "b.json", "--force").returncode == 0

    def test_import_converts(self, tmp_path: Path) -> None:
        out = tmp_path / "ours.json"
        assert mopt("compare", "--import", VLLM, "--out", out).returncode == 0
        assert codec.load(out, Measurement).made_by == "vllm bench serve"
        assert mopt("compare", VLLM, out).returncode == 0

    def test_bad_input_is_told_in_json_too(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text('{"points": [')
        done = mopt("compare", tmp_path / "x.json", tmp_path / "x.json", "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["message"].endswith("is no JSON")


class TestReport:
    def test_three_formats_at_once(self, tmp_path: Path) -> None:
        a = written(tmp_path / "a.json")
        outs = [tmp_path / f"r.{kind}" for kind in ("html", "md", "json")]
        done = mopt("report", a, *(word for out in outs for word in ("-o", out)))
        assert done.returncode == 0
        page, text, noun = (out.read_text() for out in outs)
        assert page.startswith("<!doctype html>") and "http://" not in page.replace("http://www.w3.org", "")
        assert text.startswith("# m\n")
        assert json.loads(noun)["schema"] == "measurement/1"

    def test_without_a_file_it_prints_text(self, tmp_path: Path) -> None:
        assert mopt("report", written(tmp_path / "a.json")).stdout.startswith("# m\n")

    @pytest.mark.parametrize("name", ["report.pdf", "report"])
    def test_a_name_that_says_nothing(self, tmp_path: Path, name: str) -> None:
        done = mopt("report", written(tmp_path / "a.json"), "-o", tmp_path / name)
        assert done.returncode == 2 and not (tmp_path / name).exists()

    def test_what_is_no_run(self, tmp_path: Path) -> None:
        assert mopt("report", tmp_path).returncode == 2
        assert mopt("report", tmp_path / "none").returncode == 2

    def test_a_full_disk(self, tmp_path: Path) -> None:
        done = mopt("report", written(tmp_path / "a.json"), "-o", "/dev/full", "--format", "html")
        assert done.returncode == 3 and "full" in done.stderr


class TestSoak:
    def test_a_short_one_settles_nothing_and_says_so(self, server: str, tmp_path: Path) -> None:
        words = ("--for", "2s", "--window", "1s", "--rate", "10", "--output-tokens", "2")
        done = mopt("soak", server, *words, "--out", tmp_path, "--json")
        found = json.loads(done.stdout)
        assert done.returncode == 0 and found["outcome"] == "undecided" and found["finished"]
        assert mopt("soak", server, "--status", "--strict", "--out", tmp_path).returncode == 1
        assert "<svg" in mopt("report", tmp_path, "--format", "html").stdout
        assert "**undecided**" in mopt("report", tmp_path).stdout
        assert "holds a soak already" in mopt("soak", server, *words, "--out", tmp_path).stderr

    def test_one_that_was_killed_goes_on(self, server: str, tmp_path: Path) -> None:
        words = ("--for", "8s", "--window", "0.5s", "--rate", "10", "--output-tokens", "2")
        running = started("soak", server, *words, "--out", tmp_path)
        journal = tmp_path / "soak.jsonl"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (journal.exists() and journal.read_text().count("\n") > 3):
            time.sleep(0.05)
        running.kill()
        running.communicate(timeout=30)
        kept = journal.read_text().count("\n") - 1
        assert kept >= 3
        done = mopt("soak", server, *words, "--out", tmp_path, "--resume", "--json")
        found = json.loads(done.stdout)
        assert found["finished"] and found["windows"] > kept
        assert journal.read_text().splitlines()[kept - 1 + 1]  # the first windows are still there

    def test_ctrl_c_keeps_what_there_is(self, server: str, tmp_path: Path) -> None:
        words = ("--for", "60s", "--window", "0.5s", "--rate", "10", "--output-tokens", "2")
        running = started("soak", server, *words, "--out", tmp_path)
        journal = tmp_path / "soak.jsonl"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (journal.exists() and journal.read_text().count("\n") > 3):
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
        assert running.returncode == 130
        assert "did not run to its end" in out
        assert (tmp_path / "soak.json").exists()

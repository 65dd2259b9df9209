"""`mopt bench` from the command line: its screens, its options, its exit codes."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer.bench.target import PATHS
from model_optimizer.cli.commands import bench
from model_optimizer.cli.render_bench import measurement_text
from model_optimizer.core import (
    ClientHealth,
    HostError,
    Lengths,
    LoadPoint,
    Measurement,
    Percentiles,
    Slo,
    UsageError,
    codec,
)
from model_optimizer.core.measurement import Capacity, Trial
from model_optimizer.system import files
from model_optimizer.testing.fake_server import Behaviour, FakeServer

QUICK = Behaviour(ttft_ms=0.5, tpot_ms=0.1)


def percentiles(p50: float, p99: float | None) -> Percentiles:
    return Percentiles(
        p50=p50, p99=p99, because=None if p99 else "p99 falls on a failed request (1 of 64 failed)"
    )


MEASUREMENT = Measurement(
    points=(
        LoadPoint(
            target="concurrency 8",
            completed=63,
            failed=1,
            errors={"timeout": 1},
            error_examples={"timeout": "no whole answer within \x1b[31m5 s"},
            window_s=12.345,
            window="from the first measured request until load was no longer offered",
            requests_per_s=5.18,
            output_tokens_per_s=663.4,
            goodput_requests_per_s=4.9,
            ttft_ms=percentiles(103.2, None),
            tpot_ms=percentiles(8.123, 9.4),
            itl_ms=percentiles(7.9, 31.0),
            e2e_ms=percentiles(1140.0, None),
            tokens_counted_by="server usage",
            prompt_tokens_drift=0.034,
            energy_j=512.3,
            energy_source="RAPL counter of 1 processor package",
            memory_bytes=812 << 20,
            memory_source="peak of its processes",
            client=ClientHealth(healthy=False, because="its event loop was late by 7.2 ms (p99)"),
            notes=("63 of 63 answers had another length than asked for",),
        ),
    ),
    url="http://127.0.0.1:8000",
    model="m",
    api="completions",
    slo=Slo(ttft_ms=200),
    notes=("prompts: random words",),
    interrupted=True,
)


def test_the_screen() -> None:
    assert measurement_text(MEASUREMENT) == snapshot("""\
m at http://127.0.0.1:8000, completions
INTERRUPTED: what was measured until then

load           done  failed  req/s  out tok/s  TTFT p50     p99  TPOT p50     p99  ITL p99  E2E p50     p99  goodput/s
-------------  ----  ------  -----  ---------  --------  ------  --------  ------  -------  -------  ------  ---------
concurrency 8    63       1   5.18        663    103 ms  failed   8.12 ms  9.4 ms    31 ms   1.14 s  failed        4.9

concurrency 8: 1 x timeout, for example: no whole answer within \\x1b[31m5 s
concurrency 8: 63 of 63 answers had another length than asked for
concurrency 8: the client could not keep up: its event loop was late by 7.2 ms (p99)
concurrency 8: window of 12.3 s, from the first measured request until load was no longer offered
times begin: when sent
tokens counted by: server usage
note: prompts: random words
prompts: 3% longer than wanted
energy: 512 J in the window of concurrency 8 (RAPL counter of 1 processor package)
memory: 812 MiB, peak of its processes
""")


def test_embeddings_have_a_screen_of_their_own() -> None:
    point = LoadPoint(
        target="concurrency 2",
        completed=40,
        failed=0,
        window_s=1.0,
        window="whole",
        requests_per_s=40.0,
        input_tokens_per_s=5120.0,
        e2e_ms=percentiles(50, 60),
    )
    found = Measurement(points=(point,), url="http://127.0.0.1:1", model="e", api="embeddings")
    assert measurement_text(found) == snapshot("""\
e at http://127.0.0.1:1, embeddings

load           done  failed  req/s  in tok/s  E2E p50    p99
-------------  ----  ------  -----  --------  -------  -----
concurrency 2    40       0     40      5120    50 ms  60 ms

concurrency 2: window of 1 s, whole
times begin: when sent
energy: not measurable here
""")


def call(*words: str):
    return CliRunner().invoke(bench.COMMAND, list(words), catch_exceptions=True)


def test_all_interfaces_are_offered() -> None:
    assert set(bench._APIS) == set(PATHS)


def test_examples_of_the_manual() -> None:
    with FakeServer(QUICK) as server:
        url = server.url
        closed = call(
            *f"{url} --model m --concurrency 8 --requests 16 --prompt-tokens 64 --output-tokens 4 --json".split()
        )
        opened = call(*f"{url} --model m --rate 40 --arrivals poisson --for 0.5s --json".split())
    assert (closed.exit_code, opened.exit_code) == (0, 0)
    found = json.loads(closed.stdout)
    assert found["schema"] == "measurement/1"
    assert (found["model"], found["points"][0]["completed"]) == ("m", 16)
    assert {"points", "client", "telemetry", "definitions", "vllm_bench"} <= found.keys()
    assert json.loads(opened.stdout)["points"][0]["start"] == "scheduled"


def test_out_keeps_the_noun(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    with FakeServer(QUICK) as server:
        done = call(
            server.url, "--requests", "4", "--concurrency", "1,2", "--out", str(out), "--ttft-ms", "1000"
        )
    assert done.exit_code == 0
    assert "concurrency 2" in done.stdout
    found = codec.load(out, Measurement)
    assert [p.concurrency for p in found.points] == [1, 2]
    assert found.slo == Slo(ttft_ms=1000)
    assert found.points[0].attainment == 1


def test_calibration_states_a_ceiling() -> None:
    with FakeServer(QUICK) as server:
        done = call(server.url, "--requests", "4", "--calibrate", "--output-tokens", "4", "--json")
    assert done.exit_code == 0, done
    client = json.loads(done.stdout)["client"]
    assert client["ceiling_requests_per_s"] > 100


@pytest.mark.parametrize(
    "words",
    [
        "--qps 5 --concurrency 3",
        "--arrivals poisson",
        "--arrivals constant --concurrency 3",
        "--qps 5 --arrivals poisson --burstiness 2",
        "--requests 5 --for 5s",
        "--for 0",
        "--qps inf",
        "--qps inf,5",
        "--qps 0",
        "--qps nan",
        "--concurrency 1,x",
        "--concurrency 0",
        "--concurrency -1",
        "--prompts /nowhere/at/all",
        "--tokenizer /nowhere/at/all",
        "--api-key-env NOT_SET_ANYWHERE",
        "--pid 999999999",
        "--trace /nowhere/at/all",
        "--trace x --qps 5",
        "--speed 2",
        "--ramp-to 5",
        "--ramp-to 5 --qps 1",
        "--think-time 5s",
        "--mix a=0",
        "--mix a=1 --model b",
        "--image 0x0",
        "--image /nowhere/at/all",
        "--find-max",
        "--find-max --sweep",
        "--up-to 5",
        "--until-ci 0",
        "--until-ci 200%",
        "--turns 2 --api rerank",
    ],
)
def test_wrong_usage(words: str) -> None:
    with FakeServer(QUICK) as server:
        done = call(server.url, *words.split())
    assert isinstance(done.exception, UsageError), done


def options_of(words: str) -> dict:
    context = bench.COMMAND.make_context("bench", ["http://h", *words.split()])
    return context.params


def test_options_become_nouns() -> None:
    given = options_of("--rate 2,4 --burstiness 0.5 --prompt-tokens uniform:10,20 --for 2m --shared-prefix 5")
    work = bench._workload(given)
    assert (work.arrivals, work.qps, work.burstiness, work.shared_prefix) == ("gamma", 2, 0.5, 5)
    assert work.prompt_tokens == Lengths(kind="uniform", numbers=(10, 20))
    assert (bench._options(given).levels, bench._options(given).duration_s) == ((2, 4), 120)
    burst = bench._workload(options_of("--qps inf --requests 9"))
    assert (burst.arrivals, burst.qps) == ("burst", math.inf)
    default = bench._workload(options_of("--api rerank"))
    assert (default.task, default.arrivals, default.concurrency) == ("rerank", "closed", 1)


def mopt(*words: str, **more):
    command = [sys.executable, "-m", "model_optimizer", "bench", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_ctrl_c_prints_what_there_is_and_says_so() -> None:
    with FakeServer(QUICK) as server:
        running = mopt(server.url, "--for", "60s", "--json")
        until = time.monotonic() + 30
        while len(server.records) < 20 and time.monotonic() < until:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(out)["interrupted"] is True
    assert "Traceback" not in err


def test_a_refused_request_is_one_clear_error() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENAI_API_KEY", "MOPT_API_KEY")}
    with FakeServer(Behaviour(api_key="sk-right")) as server:
        running = mopt(server.url, "--model", "m", env={**environment, "OPENAI_API_KEY": "sk-wrong"})
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (1, "")
    assert err.replace(server.url, "URL") == snapshot("""\
asking URL
error[refused]: URL refused the request
cause: HTTP 401 Said: {"error": {"message": "Incorrect API key provided: Bearer ***", "code": 401}}
cause: the key that was sent is not accepted
hint: put the key into OPENAI_API_KEY, or name its variable with --api-key-env
""")
    assert "sk-wrong" not in err


def test_a_dead_server_is_a_matter_of_the_machine() -> None:
    with FakeServer(QUICK) as server:
        url = server.url
    running = mopt(url, "--json")
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 3
    assert json.loads(out)["error"]["reference"] == "server-unreachable"


def test_no_thread_of_the_server_is_left() -> None:
    assert not [t for t in threading.enumerate() if t.name == "fake-server"]


def test_the_loads_of_the_manual_work(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": []}\n' * 3)
    for words in (
        f"--trace {trace} --speed 4",
        "--rate 10 --ramp-to 40 --for 0.5s",
        "--rate inf --requests 5",
        "--turns 2 --think-time 1ms --requests 4 --concurrency 2",
        "--mix base=3,adapter=1 --requests 8",
        "--image 16x16 --requests 2",
        "--until-ci 90% --requests 6",
        "--processes 2 --concurrency 2 --requests 6",
        "--sweep --up-to 2 --requests 8",
        "--find-max --up-to 2 --requests 8 --ttft-ms 10000 --percentile 50",
        "--api rerank --requests 3",
        "--api score --requests 3",
        "--api embeddings --requests 3",
    ):
        with FakeServer(QUICK) as server:
            options = "--no-calibrate --no-telemetry --output-tokens 2 --prompt-tokens 8 --warmup 0"
            done = call(server.url, *words.split(), *options.split(), "--json")
        assert done.exit_code == 0, (words, done)
        found = json.loads(done.stdout)
        assert found["points"][0]["completed"] > 0, words


def test_a_search_has_a_screen() -> None:
    trials = (
        Trial(level=4, met=40, total=40, interval=(0.912, 1.0), meets=True),
        Trial(level=8, met=3, total=40, interval=(0.026, 0.199), meets=False, kept_up=False, aborted=True),
    )
    capacity = Capacity(
        axis="requests/s", best=4, above=8, resolved=True, because="sure", share=0.9, trials=trials
    )
    found = Measurement(points=MEASUREMENT.points, capacity=capacity, model="m", url="u", api="completions")
    said = [line for line in measurement_text(found).splitlines() if "limit" in line]
    assert said == snapshot(
        [
            "meets the limits: up to 4 requests/s, not 8 (resolved: sure)",
            "  at 4: 40 of 40 met every limit (91.2% to 100.0%)",
            "  at 8: 3 of 40 met every limit (2.6% to 19.9%), stopped early, the queue grew",
        ]
    )


def test_a_full_disk_leaves_the_numbers_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(path: Path, content: object) -> None:
        raise HostError(f"`{path}` cannot be written", cause=("No space left on device",))

    monkeypatch.setattr(files, "write_atomic", full)
    with FakeServer(QUICK) as server:
        done = call(
            server.url, "--requests", "4", "--no-calibrate", "--out", str(tmp_path / "m.json"), "--json"
        )
    assert done.exit_code == 3
    assert json.loads(done.stdout)["points"][0]["completed"] == 4
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_device_that_is_full() -> None:
    with FakeServer(QUICK) as server:
        done = call(server.url, "--requests", "4", "--no-calibrate", "--out", "/dev/full")
    assert done.exit_code == 3
    assert "concurrency 1" in done.stdout
    assert "/dev/full" in done.stderr


def test_strict_does_not_let_an_overloaded_client_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_ceiling", lambda *_: 0.001)
    with FakeServer(QUICK) as server:
        lenient, strict = (call(server.url, "--requests", "4", *more) for more in ((), ("--strict",)))
    assert (lenient.exit_code, strict.exit_code) == (0, 1)
    assert "INVALID: the client could not keep up" in lenient.stdout

"""A measurement from end to end, against a server that does as it is told. Nothing here depends on timing
beyond what the server's own order of events guarantees."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_optimizer.bench.nothing import NothingCompleted
from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.scout import Scout
from model_optimizer.bench.target import Target
from model_optimizer.core import HostError, Lengths, Measurement, MoptError, Slo, UsageError, Workload
from model_optimizer.testing.fake_server import Behaviour, FakeServer

QUICK = Behaviour(ttft_ms=0.5, tpot_ms=0.1)
WORK = Workload(concurrency=4, requests=12, prompt_tokens=Lengths.fixed(20), output_tokens=Lengths.fixed(3))


def quiet(text: str, share: float | None) -> None:
    pass


def bench(
    server: FakeServer, workload: Workload = WORK, target: Target | None = None, **options
) -> Measurement:
    target = replace(target or Target(url="", vocab_size=1000), url=server.url)
    return measure(target, workload, Slo(), progress=quiet, options=BenchOptions(**options))


@contextmanager
def serving(**behaviour) -> Iterator[FakeServer]:
    with FakeServer(replace(QUICK, **behaviour)) as server:
        yield server


def loaded(server: FakeServer) -> list:
    """The requests of the load, without the ones before it (which want short answers of 3 tokens too)."""
    return server.records[1:]


def after(server: FakeServer, requests: int, action: Callable[[], None]) -> threading.Thread:
    """Do something when the server has seen so many requests."""

    def wait() -> None:
        while len(server.records) < requests:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


class TestClosedLoop:
    def test_counts_and_structure(self) -> None:
        with serving() as server:
            found = bench(server)
        (point,) = found.points
        assert (point.target, point.completed, point.failed, point.errors) == ("concurrency 4", 12, 0, {})
        assert (found.model, found.api, found.url) == ("fake", "completions", server.url)
        assert (point.prompt_tokens_mean, point.prompt_tokens_drift, point.output_tokens_mean) == (20, 0, 3)
        assert (point.start, point.tokens_counted_by, point.tokens_per_chunk) == ("sent", "server usage", 1)
        assert len(loaded(server)) == 4 + 12  # warm-up and measured
        assert server.connections <= 5  # kept alive: one a user, one for the questions before
        assert point.requests_per_s > 0 and point.output_tokens_per_s > 0 and point.input_tokens_per_s > 0
        assert point.vllm_bench["completed"] == found.vllm_bench["completed"] == 12
        assert found.notes == ("prompts: random token ids",)
        assert found.interrupted is False

    def test_levels_are_points_with_fresh_prompts(self) -> None:
        with serving() as server:
            found = bench(server, replace(WORK, requests=4), levels=(1, 2), warmup=0)
        assert [p.target for p in found.points] == ["concurrency 1", "concurrency 2"]
        prompts = [tuple(r.body["prompt"]) for r in server.records]
        assert len(set(prompts)) == len(prompts)

    def test_the_same_seed_asks_the_same(self) -> None:
        asked = []
        for seed in (3, 3, 4):
            with serving() as server:
                work = replace(
                    WORK, concurrency=1, requests=3, prompt_tokens=Lengths(kind="uniform", numbers=(2, 9))
                )
                target = Target(url=server.url, vocab_size=1000)
                measure(target, work, Slo(), progress=quiet, seed=seed)
                asked.append([r.body["prompt"] for r in server.records])
        assert asked[0] == asked[1] != asked[2]

    def test_answers_can_be_read_on_the_way_to_save_memory(self) -> None:
        with serving(ttft_ms=10) as server:
            (point,) = bench(server, replace(WORK, requests=40), keep_bytes=1).points
        assert (point.completed, point.output_tokens_mean) == (40, 3)

    def test_a_time_ends_it(self) -> None:
        with serving() as server:
            (point,) = bench(server, replace(WORK, requests=None), duration_s=0.3).points
        assert point.completed > 0
        assert 0.1 < point.window_s < 0.300001  # it may begin later, where the start of the load shows

    def test_times_are_those_of_the_server(self) -> None:
        """A client cannot have received a token before the server wrote it."""
        with serving(ttft_ms=20) as server:
            (point,) = bench(server).points
        assert point.ttft_ms.p50 >= 19 and point.e2e_ms.p50 >= point.ttft_ms.p50


class TestOpenLoop:
    @pytest.mark.parametrize("arrivals", ["constant", "poisson", "gamma"])
    def test_counts(self, arrivals) -> None:
        work = replace(WORK, arrivals=arrivals, concurrency=None, qps=200.0, requests=20)
        with serving() as server:
            (point,) = bench(server, work, warmup=5).points
        assert (point.completed, point.start, point.qps) == (20, "scheduled", 200)
        assert len(loaded(server)) == 25
        assert point.client.schedule_slip_ms_p99 is not None
        assert point.ttft_from_scheduled_ms == point.ttft_ms

    def test_a_burst(self) -> None:
        with serving() as server:
            (point,) = bench(
                server, replace(WORK, arrivals="burst", concurrency=None, qps=float("inf"))
            ).points
        assert (point.target, point.completed, point.qps) == ("burst of 12 requests", 12, None)
        assert "too short to leave out the drain" in point.window

    def test_a_time_ends_it(self) -> None:
        work = replace(WORK, arrivals="constant", concurrency=None, qps=50.0, requests=None)
        with serving() as server:
            (point,) = bench(server, work, duration_s=0.4, warmup=2).points
        assert (point.completed, point.window_s) == (20, pytest.approx(0.4))

    def test_waiting_for_the_server_is_counted(self) -> None:
        """Requests do not wait for the ones before them."""
        work = replace(WORK, arrivals="constant", concurrency=None, qps=200.0, requests=10)
        with serving(ttft_ms=100) as server:
            (point,) = bench(server, work, warmup=0).points
        first, *others = loaded(server)
        assert any(other.received_ns < first.wrote_ns[0] for other in others)
        assert point.completed == 10


class TestInterfaces:
    def test_chat(self) -> None:
        with serving(template_tokens=6, tokens_per_word=2) as server:
            found = bench(server, target=Target(url="", api="chat"))
        (point,) = found.points
        assert (found.api, point.completed, point.output_tokens_mean) == ("chat", 12, 3)
        assert point.prompt_tokens_mean == 20  # calibrated: 7 words of two tokens, and the template
        assert found.notes == ("prompts: random words",)

    @pytest.mark.parametrize(("api", "texts"), [("embeddings", 1), ("rerank", 4), ("score", 4)])
    def test_pooling(self, api, texts) -> None:
        with serving() as server:
            found = bench(server, target=Target(url="", api=api))
        (point,) = found.points
        assert (point.completed, point.output_tokens_per_s, point.ttft_ms.p50) == (12, None, None)
        assert point.prompt_tokens_mean == pytest.approx(20 * texts, abs=texts * 11)
        assert point.e2e_ms.p50 > 0
        assert point.requests_per_s > 0

    @pytest.mark.parametrize("processes", [1, 2])
    def test_tensors_of_images(self, processes) -> None:
        with serving(apis=frozenset(), tensors=(("pixels", (-1, 3, -1, -1)), ("scale", (1,)))) as server:
            found = bench(server, replace(WORK, images=("16x8",)), Target(url=""), processes=processes)
        (point,) = found.points
        assert (found.api, point.completed, point.failed, point.ttft_ms.p50) == ("infer", 12, 0, None)
        pixels, scale = (record := server.records[-1]).body["inputs"]
        assert record.path == "/v2/models/fake/infer" and set(record.body) == {"inputs"}
        assert (pixels["name"], pixels["shape"], len(pixels["data"])) == ("pixels", [1, 3, 8, 16], 384)
        assert len(scale["data"]) == 1
        asked = [r.body["inputs"][0]["data"] for r in server.records if "inputs" in r.body]
        assert len({tuple(data) for data in asked}) > 6

    def test_a_server_that_takes_shorter_requests_is_told_apart(self) -> None:
        where = SimpleNamespace(origin="http://127.0.0.1:1")
        scout = Scout(None, where, None, BenchOptions(), 0)
        for said, first in (("400: context_length_exceeded", "shorter requests"), ("404", "model `m`")):
            error = scout._nothing("m", [], SimpleNamespace(error="http_4xx", detail=said))
            assert first in error.hint[0]

    def test_tensors_of_a_free_size_ask_for_it(self) -> None:
        with (
            serving(apis=frozenset(), tensors=(("pixels", (-1, 3, -1, -1)),)) as server,
            pytest.raises(UsageError, match="has free sizes: -1 x 3 x -1 x -1") as caught,
        ):
            bench(server, target=Target(url=""))
        assert "--image" in caught.value.hint[0]

    @pytest.mark.parametrize("api", ["chat", "embeddings"])
    def test_the_interface_that_the_server_has_is_found(self, api) -> None:
        with serving(apis=frozenset({api})) as server:
            assert bench(server).api == api

    def test_without_streaming(self) -> None:
        with serving() as server:
            found = bench(server, target=Target(url="", stream=False, vocab_size=1000))
        assert found.points[0].ttft_ms.because == "the answers were not streamed"
        assert found.points[0].output_tokens_per_s > 0
        with serving(streams=False) as server:
            found = bench(server)
        assert "the server does not stream: there is no time to first token" in found.notes

    def test_what_the_server_does_not_know_is_left_out(self) -> None:
        with serving(refuses=frozenset({"ignore_eos", "stream_options"}), token_ids=False) as server:
            found = bench(server)
        (point,) = found.points
        assert point.completed == 12
        assert set(server.records[-1].body) == {"model", "prompt", "max_tokens", "temperature", "stream"}
        assert point.tokens_counted_by == "stream events (the server reported no usage)"
        assert any("ignore_eos" in note for note in found.notes)

    @pytest.mark.parametrize(
        "behaviour",
        [{"crlf": True, "comments": True}, {"split": 3}, {"huge_line_bytes": 300_000}, {"closes": True}],
    )
    def test_odd_but_sound_servers(self, behaviour) -> None:
        with serving(**behaviour) as server:
            (point,) = bench(server).points
        assert (point.completed, point.failed, point.output_tokens_mean) == (12, 0, 3)

    def test_several_tokens_an_event(self) -> None:
        with serving(tokens_per_chunk=3) as server:
            (point,) = bench(server, replace(WORK, output_tokens=Lengths.fixed(9))).points
        assert (point.output_tokens_mean, point.tokens_per_chunk) == (9, 3)

    def test_prompts_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text('{"prompt": "one two"}\n{"prompt": "three", "output_tokens": 5}\n')
        with serving() as server:
            found = bench(server, prompts=str(file))
        assert {r.body["prompt"] for r in server.records} == {"one two", "three"}
        assert {r.body["max_tokens"] for r in loaded(server)} == {3, 5}
        assert found.notes == ("prompts: prompts from a file",)

    def test_a_key_is_sent_and_never_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_KEY", "sk-secret")
        with serving(api_key="sk-secret") as server:
            assert bench(server, target=Target(url="", api_key_env="SOME_KEY")).points[0].completed == 12
        with serving(api_key="sk-other") as server, pytest.raises(MoptError) as caught:
            bench(server, target=Target(url="", api_key_env="SOME_KEY"))
        assert caught.value.reference == "refused"
        assert "sk-secret" not in repr((caught.value.message, caught.value.cause, caught.value.hint))


class TestFailures:
    def test_some_requests_fail(self) -> None:
        with serving(fail_every=5) as server:
            (point,) = bench(server, replace(WORK, requests=20, concurrency=1), warmup=0).points
        assert (point.completed, point.failed, point.errors) == (16, 4, {"http_5xx": 4})
        assert point.ttft_ms.p50 is not None and point.ttft_ms.p99 is None
        assert "told to fail" in point.error_examples["http_5xx"]

    def test_streams_that_are_cut_off(self) -> None:
        with serving(truncate_every=2) as server:
            (point,) = bench(server, replace(WORK, concurrency=1), warmup=0).points
        assert (point.completed, point.errors) == (6, {"truncated_stream": 6})

    @pytest.mark.parametrize(
        ("behaviour", "reference", "says"),
        [
            ({"api_key": "sk"}, "refused", "HTTP 401"),
            ({"apis": frozenset()}, "nothing-completed", "HTTP 404"),
            ({"html": True}, "nothing-completed", "HTML instead of JSON"),
            ({"status": 503}, "nothing-completed", " x http_5xx"),
            ({"silent": True}, "nothing-completed", "no whole answer within 0.5 s"),
            ({"endless": True}, "nothing-completed", "no whole answer within 0.5 s"),
            ({"truncate_every": 1}, "nothing-completed", "truncated_stream"),
        ],
    )
    def test_a_server_that_never_answers_well(self, behaviour, reference, says, monkeypatch) -> None:
        for name in ("MOPT_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        with serving(**behaviour) as server, pytest.raises(MoptError) as caught:
            bench(server, replace(WORK, requests=400), timeout_s=0.5)
        assert (caught.value.exit_code, caught.value.reference) == (1, reference)
        if isinstance(caught.value, NothingCompleted):
            assert sum(caught.value.errors.values()) >= 1
            assert caught.value.errors.keys() == caught.value.examples.keys()
        assert says in " ".join(caught.value.cause)

    def test_an_answer_that_grows_without_end_is_cut(self) -> None:
        with serving(endless=True, huge_line_bytes=100_000) as server, pytest.raises(MoptError) as caught:
            bench(server, answer_limit_bytes=1 << 20)
        assert "longer than 1048576 bytes" in caught.value.cause[0]

    def test_time_limits_are_counted_as_failures(self) -> None:
        with serving(stall_every=4, stall_ms=60_000) as server:
            (point,) = bench(server, replace(WORK, requests=6, concurrency=3), warmup=0, timeout_s=0.5).points
        assert (point.completed, point.errors) == (5, {"timeout": 1})
        assert point.error_examples == {"timeout": "no whole answer within 0.5 s"}

    def test_negative_usage_is_told(self) -> None:
        with serving(usage="negative") as server:
            (point,) = bench(server).points
        assert (point.completed, point.output_tokens_mean) == (12, 3)
        assert any("less than one token" in note for note in point.notes)

    def test_no_server(self) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{held.getsockname()[1]}"
            with pytest.raises(HostError) as caught:
                measure(Target(url=url, model="m"), WORK, Slo(), progress=quiet)
        assert caught.value.reference == "server-unreachable"

    def test_a_name_that_does_not_resolve(self) -> None:
        with pytest.raises(HostError):
            measure(Target(url="http://nowhere.invalid:1", model="m"), WORK, Slo(), progress=quiet)

    def test_something_that_is_not_http(self) -> None:
        def greet() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                    connection.recv(1 << 16)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=greet, daemon=True)
            thread.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(UsageError, match="does not say which models"):
                measure(Target(url=url), WORK, Slo(), progress=quiet)
            with pytest.raises(MoptError) as caught:
                measure(
                    Target(url=url, model="m"), WORK, Slo(), progress=quiet, options=BenchOptions(timeout_s=1)
                )
            assert caught.value.reference == "nothing-completed"
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def test_a_server_that_dies_on_the_way(self) -> None:
        with serving(tpot_ms=2) as server:
            timer = after(server, 40, server.stop)
            work = replace(WORK, requests=None, output_tokens=Lengths.fixed(5))
            (point,) = bench(server, work, duration_s=1.5).points
            timer.join()
        assert point.completed > 0
        assert set(point.errors) <= {"connect", "truncated_stream"}
        assert 0 < point.failed < 100  # a dead server is not asked in a busy loop


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeServer(QUICK, tls=context) as server:
        with pytest.raises(HostError) as caught:
            bench(server)
        assert "certificate verify failed" in caught.value.cause[0]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert bench(server).points[0].completed == 12


def test_ctrl_c_keeps_what_was_measured() -> None:
    with serving(tpot_ms=2) as server:
        timer = after(server, 20, lambda: os.kill(os.getpid(), signal.SIGINT))
        found = bench(server, replace(WORK, requests=None), levels=(2, 4), duration_s=60)
        timer.join()
    (point,) = found.points
    assert (found.interrupted, point.interrupted) == (True, True)
    assert point.completed > 0
    assert point.failed == 0
    assert 0 < point.window_s < 60


def test_memory_and_energy_come_from_the_caller() -> None:
    class Joules:
        source = "a counter of the test"
        read = 0.0

        def __call__(self) -> float:
            self.read += 1
            return self.read

    with serving() as server:
        target = Target(url=server.url, vocab_size=1000)
        found = measure(target, WORK, Slo(), progress=quiet, sample_memory=lambda: 1000, energy=Joules())
    (point,) = found.points
    assert (point.memory_bytes, point.memory_source) == (
        1000,
        "peak of what the server's processes held, every 0.5 s",
    )
    assert point.energy_j is not None and point.energy_source == "a counter of the test"


def test_progress_is_told() -> None:
    said: list[tuple[str, float | None]] = []
    with serving() as server:
        measure(
            Target(url=server.url, vocab_size=1000),
            replace(WORK, requests=None),
            Slo(),
            progress=lambda text, share: said.append((text, share)),
            options=BenchOptions(duration_s=0.5),
        )
    assert said[0] == (f"asking {server.url}", None)
    assert said[1] == ("preparing concurrency 4", None)
    assert said[2] == ("measuring concurrency 4", 0.0)
    shares = [share for text, share in said[2:] if share is not None]
    assert shares == sorted(shares) and 0 < shares[-1] <= 1

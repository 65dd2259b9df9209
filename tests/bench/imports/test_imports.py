"""Results of other tools: real files of `vllm bench serve`, and files after the published schemas."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from model_optimizer.bench import imports
from model_optimizer.core import LoadPoint, Measurement, UsageError, codec

DATA = Path(__file__).parents[2] / "data/bench"


class TestVllm:
    """Files that vllm 0.32 wrote: 60 requests, 4 in flight, two of which failed."""

    def test_with_details_everything_is_computed_anew(self) -> None:
        file = DATA / "vllm-bench-0.32-detailed.json"
        raw = json.loads(file.read_text())
        found = imports.read(file)
        (point,) = found.points
        assert (found.made_by, found.model, point.target) == ("vllm bench serve", "soaked", "concurrency 4")
        assert (point.completed, point.failed) == (58, 2)
        assert point.ttft_ms.mean == pytest.approx(raw["mean_ttft_ms"])
        assert point.tpot_ms.mean == pytest.approx(raw["mean_tpot_ms"])
        assert point.itl_ms.mean == pytest.approx(raw["mean_itl_ms"])
        assert point.ttft_ms.p50 == pytest.approx(raw["median_ttft_ms"], rel=0.01)
        assert point.requests_per_s == raw["request_throughput"]
        assert point.vllm_bench["p99_ttft_ms"] == raw["p99_ttft_ms"]

    def test_failures_rank_above_all(self) -> None:
        """Two of sixty failed: under our definition the 99th percentile is a failure, under theirs a time."""
        (point,) = imports.read(DATA / "vllm-bench-0.32-detailed.json").points
        assert point.ttft_ms.p99 is None and "2 of 60 failed" in (point.ttft_ms.because or "")

    def test_without_details_what_is_not_ours_is_left_out(self) -> None:
        file = DATA / "vllm-bench-0.32.json"
        raw = json.loads(file.read_text())
        (point,) = imports.read(file).points
        assert point.ttft_ms.p50 == raw["median_ttft_ms"] and point.ttft_ms.p99 is None
        assert point.ttft_ms.sd == raw["std_ttft_ms"]
        assert "failed" in (point.ttft_ms.because or "")
        assert point.e2e_ms.mean == pytest.approx(1000 * fmean(x for x in raw["latencies"] if x > 0))
        assert point.prompt_tokens_mean == pytest.approx(864 / 58)

    def test_times_begin_when_sent_and_it_is_said(self) -> None:
        found = imports.read(DATA / "vllm-bench-0.32.json")
        assert found.points[0].start == "sent"
        assert found.definitions["start"] == "when sent"

    def test_an_open_loop_is_one(self, tmp_path: Path) -> None:
        raw = json.loads((DATA / "vllm-bench-0.32.json").read_text())
        raw |= {"request_rate": 5.0, "max_concurrency": None}
        file = tmp_path / "x.json"
        file.write_text(json.dumps(raw))
        found = imports.read(file)
        assert found.points[0].target == "5 requests/s poisson"
        assert "not in the file" in found.definitions["start"]

    def test_appended_results_are_points(self, tmp_path: Path) -> None:
        raw = json.loads((DATA / "vllm-bench-0.32.json").read_text())
        file = tmp_path / "x.json"
        lines = [json.dumps(raw | {"max_concurrency": n}) for n in (1, 2, 4)]
        file.write_text("\n".join(lines))
        assert [p.target for p in imports.read(file).points] == [f"concurrency {n}" for n in (1, 2, 4)]

    def test_older_releases_write_less(self, tmp_path: Path) -> None:
        """0.8.5 wrote no `failed`, and `endpoint_type` for the backend."""
        raw = json.loads((DATA / "vllm-bench-0.32.json").read_text())
        for name in ("failed", "backend", "latencies", "queue_times", "rtfx", "max_concurrent_requests"):
            raw.pop(name)
        file = tmp_path / "x.json"
        file.write_text(json.dumps(raw))
        (point,) = imports.read(file).points
        assert point.failed == 2
        assert point.e2e_ms.mean is None and point.e2e_ms.because == "vllm bench did not write it"


def summary(mean: float, count: int = 50) -> dict[str, object]:
    one = {
        "mean": mean,
        "median": mean * 0.9,
        "std_dev": mean * 0.2,
        "count": count,
        "percentiles": {"p50": mean * 0.9, "p90": mean * 1.3, "p99": mean * 2},
    }
    return {"successful": one, "errored": {"mean": 0.0, "count": 0}, "total": one}


def guidellm(*, errored: int = 0) -> dict[str, object]:
    metrics = {
        "requests_per_second": summary(4.0),
        "request_latency": summary(1.5),
        "prompt_token_count": summary(256),
        "output_token_count": summary(128),
        "time_to_first_token_ms": summary(50),
        "time_per_output_token_ms": summary(12),
        "inter_token_latency_ms": summary(11),
        "output_tokens_per_second": summary(512),
    }
    one = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "concurrent", "streams": 8}},
        "scheduler_metrics": {
            "requests_made": {"successful": 50, "errored": errored, "incomplete": 3, "total": 53 + errored}
        },
        "metrics": metrics,
        "duration": 12.5,
        "requests": {"successful": [{"output": "private"}]},
    }
    return {"metadata": {"version": 2}, "args": {"backend": {"model": "m/n"}}, "benchmarks": [one, one]}


class TestGuideLlm:
    def test_a_point_for_each_benchmark(self, tmp_path: Path) -> None:
        file = tmp_path / "benchmarks.json"
        file.write_text(json.dumps(guidellm()))
        found = imports.read(file)
        assert (found.made_by, found.model, len(found.points)) == ("GuideLLM", "m/n", 2)
        point = found.points[0]
        assert (point.target, point.completed, point.failed) == ("concurrency 8", 50, 0)
        assert (point.ttft_ms.mean, point.ttft_ms.p99) == (50, 100)
        assert point.e2e_ms.mean == 1500
        assert point.tpot_ms.mean == 11, "what follows the first token, not the whole request by all tokens"
        assert point.itl_ms.mean is None and point.itl_ms.because
        assert point.notes == ("3 requests were cut off at the end",)
        assert "private" not in codec.dumps(found)

    def test_failures_take_the_percentiles_away(self, tmp_path: Path) -> None:
        file = tmp_path / "benchmarks.json"
        file.write_text(json.dumps(guidellm(errored=4)))
        point = imports.read(file).points[0]
        assert (point.failed, point.ttft_ms.p99) == (4, None)


class TestAiperf:
    def export(self) -> dict[str, object]:
        def block(value: float, unit: str = "ms") -> dict[str, object]:
            return {"unit": unit, "avg": value, "p50": value, "p90": value, "p99": 2 * value, "std": 1.0}

        return {
            "schema_version": "1.4",
            "request_latency": block(900),
            "time_to_first_token": block(40),
            "inter_token_latency": block(8000, "us"),
            "request_throughput": {"unit": "requests/sec", "avg": 9.5},
            "output_token_throughput": {"unit": "tokens/sec", "avg": 1200},
            "request_count": {"unit": "requests", "avg": 100},
            "benchmark_duration": {"unit": "sec", "avg": 10.5},
            "input_config": {
                "endpoint": {"model_names": ["q"], "type": "chat"},
                "loadgen": {"concurrency": 10},
            },
        }

    def test_units_are_read(self, tmp_path: Path) -> None:
        file = tmp_path / "profile_export_aiperf.json"
        file.write_text(json.dumps(self.export()))
        found = imports.read(file)
        (point,) = found.points
        assert (found.made_by, found.model, point.target) == ("AIPerf", "q", "concurrency 10")
        assert point.tpot_ms.mean == 8 and point.ttft_ms.p99 == 80
        assert (point.completed, point.window_s) == (100, 10.5)


class TestBadInput:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "no JSON"),
            (b'{"schema": "measurement/1", "points": [', "no JSON"),
            (b"[]", "no JSON object"),
            (b"3", "no JSON object"),
            (b"\xff\xfe\x00", "no JSON"),
            (b"{}", "no measurement"),
            (b'{"schema": "plan/1"}', "no measurement"),
            (b"<html>", "no JSON"),
            (b"[" * 100_000, "no JSON"),
            (b'{"benchmarks": []}', "no measurement"),
            (b'{"benchmarks": [{"metrics": 3}]}', "no whole result"),
            (
                b'{"completed": "x", "duration": 1, "request_throughput": 1, "backend": "b"}',
                "no whole result",
            ),
        ],
    )
    def test_what_is_no_result_is_said_to_be_none(self, tmp_path: Path, content: bytes, words: str) -> None:
        file = tmp_path / "x.json"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            imports.read(file)

    def test_a_measurement_cut_short_names_what_is_missing(self, tmp_path: Path) -> None:
        file = tmp_path / "x.json"
        file.write_text('{"schema": "measurement/1"}')
        with pytest.raises(UsageError) as caught:
            imports.read(file)
        assert "points" in caught.value.cause[0]

    def test_a_file_of_another_tool_than_named(self) -> None:
        with pytest.raises(UsageError, match="no result of GuideLLM"):
            imports.read(DATA / "vllm-bench-0.32.json", tool="guidellm")
        with pytest.raises(UsageError, match="there is no"):
            imports.read(DATA / "vllm-bench-0.32.json", tool="wrk")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            imports.read(tmp_path / "none.json")


def test_our_own_files_are_read_as_they_are(tmp_path: Path) -> None:
    one = Measurement(points=(LoadPoint(target="concurrency 1", completed=1, failed=0, window_s=1.0),))
    file = tmp_path / "x.json"
    file.write_text(codec.dumps(replace(one, model="m")))
    assert imports.read(file).model == "m"

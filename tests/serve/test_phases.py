"""Phases of a start and how long it will still take."""

from pathlib import Path

from model_optimizer.engines import vllm
from model_optimizer.serve.phases import Phase, Reader, Start, left_s, shown
from model_optimizer.serve.starts import KEPT, Kind, add, read

# Lines of a start of vLLM 0.25.1 on an H200 (evidence/vllm-0.25.1-h200), with its progress bars.
LOG = """\
(APIServer pid=544) INFO 11-30 14:02:49 [config/model.py:1776] Using max model len 8192
(EngineCore pid=670) INFO 11-30 14:03:08 [v1/worker/gpu/model_runner.py:280] Starting to load model /m...
Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.9it/s]\r(EngineCore pid=670) INFO 11-30 14:03:11 [v1/worker/gpu/model_runner.py:302] Model loading took 15.27 GiB and 3.7 s
(EngineCore pid=670) INFO 11-30 14:03:21 [backends.py:420] Using cache directory: /c for vLLM's torch.compile
(EngineCore pid=670) INFO 11-30 14:03:42 [monitor.py:33] torch.compile takes 20.10 s in total
(EngineCore pid=670) INFO 11-30 14:03:44 [v1/worker/gpu_worker.py:538] Available KV cache memory: 111.84 GiB
(EngineCore pid=670) INFO 11-30 14:03:44 [v1/core/kv_cache_utils.py:2146] GPU KV cache size: 814,368 tokens
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  34%|###       | 12/35 [00:07<00:13,  1.66it/s]\r(APIServer pid=544) INFO:     Application startup complete.
"""
EXPECTED = [
    "loading", "loading weights", "profiling", "compiling", "setting up the KV cache", "warming up",
    "capturing CUDA graphs", "answering",
]  # fmt: skip


def test_phases_of_a_real_log_in_the_order_they_came(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    reader = Reader(log, vllm.STAGES)
    percents: list[int | None] = []
    for second, line in enumerate(LOG.splitlines(keepends=True)):
        with log.open("a") as stream:
            stream.write(line)
        reader.look(float(second))
        percents.append(reader.percent)
    names = [phase.name for phase in reader.phases]
    assert names == EXPECTED
    assert 50 in percents
    assert 34 in percents
    assert reader.percent is None


def test_words_of_an_earlier_start_in_the_same_log_are_not_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Application startup complete\n")
    reader = Reader(log, vllm.STAGES, from_byte=log.stat().st_size)
    reader.look(1.0)
    assert reader.phase.name == "loading"


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Starting to load")
    reader = Reader(log, vllm.STAGES)
    reader.look(1.0)
    assert reader.phase.name == "loading"
    log.write_text("Starting to load model /m\n")
    reader.look(2.0)
    assert reader.phase == Phase(name="loading weights", at_s=2.0)


def start(seconds: float, *phases: tuple[str, float]) -> Start:
    return Start(seconds=seconds, phases=tuple(Phase(name=n, at_s=s) for n, s in phases))


def test_what_came_after_a_phase_comes_after_it_again() -> None:
    earlier = [start(100, ("compiling", 40)), start(130, ("compiling", 60)), start(120, ("compiling", 50))]
    compiling = Phase(name="compiling", at_s=10.0)
    assert left_s(earlier, compiling, 10.0) == 70
    assert left_s(earlier, compiling, 30.0) == 50
    assert left_s(earlier, Phase(name="new", at_s=0), 20.0) == 100
    assert left_s(earlier, compiling, 500.0) is None
    assert left_s([], compiling, 10.0) is None


def test_the_line_that_is_shown(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "log", ())
    assert shown("m", reader, 5, 22.4, 3) == "starting m: loading, 5 s, about 22 s left by 3 earlier starts"
    assert shown("m", reader, 5, None, 0) == "starting m: loading, 5 s"
    assert shown("m", reader, 90, None, 3) == "starting m: loading, 90 s, longer than 3 earlier starts"


def test_starts_are_kept_for_each_kind_and_the_oldest_forgotten(tmp_path: Path) -> None:
    kind = Kind(engine="vllm", version="0.25.1", model="sha256:1", gpu="H200")
    other = Kind(engine="vllm", version="0.25.1", model="sha256:2", gpu="H200")
    for seconds in range(KEPT + 3):
        add(kind, start(float(seconds), ("loading", 0.0)), tmp_path)
    found = read(kind, tmp_path)
    assert [s.seconds for s in found] == [float(n) for n in range(3, KEPT + 3)]
    assert found[0].phases[0].name == "loading"
    assert read(other, tmp_path) == ()
    for file in tmp_path.iterdir():
        file.write_text("{")
    assert read(kind, tmp_path) == ()

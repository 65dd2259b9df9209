"""The wiring of a study: predictions, artefacts that passed, real servers from stand-ins, files in the folder."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.flow import stand_in

from model_optimizer import api
from model_optimizer.core import (
    Estimate,
    HostError,
    Launch,
    Lengths,
    Plan,
    Setting,
    Slo,
    UsageError,
    Workload,
    codec,
)
from model_optimizer.core.plan import Spread
from model_optimizer.core.study import Study
from model_optimizer.flow import study as studies
from model_optimizer.flow.side_by_side import changed_defaults
from model_optimizer.flow.study import TuneRequest
from model_optimizer.flow.tune import Guide, Loads, Runner, attained, printed_tokens
from model_optimizer.planner.memory import card
from model_optimizer.tune import Order

SLO = Slo(ttft_ms=1000, tpot_ms=25)
WORK = Workload(concurrency=64, prompt_tokens=Lengths.fixed(1024), output_tokens=Lengths.fixed(128))
PLAN = Plan(
    model="Qwen/Qwen3-8B",
    checkpoint="Qwen/Qwen3-8B",
    gpus=1,
    workload=WORK,
    slo=SLO,
    engine="vllm",
    engine_version="0.25.1",
    scheme="bf16",
    format="safetensors",
    settings=(Setting(name="max-model-len", value="4096", because="", source="user"),),
)


def turned(**settings: str) -> Plan:
    more = tuple(
        Setting(name=n.replace("_", "-"), value=v, because="", source="measured") for n, v in settings.items()
    )
    return replace(PLAN, settings=(*PLAN.settings, *more))


@pytest.fixture(scope="module")
def guide() -> Guide:
    return Guide(
        api.read_model("Qwen/Qwen3-8B").spec,
        card.named("h200"),
        Loads(workload=WORK, slo=SLO, levels=(32.0, 64.0)),
        fit=api.fit,
        estimate=lambda question: api.estimate(question, progress=lambda text, share: None),
        scheme=api.scheme,
    )


def test_what_cannot_start_is_refused_by_memory(guide: Guide) -> None:
    assert guide.refuse(PLAN) is None
    refused = guide.refuse(turned(gpu_memory_utilization="0.1"))
    assert refused is not None and "fit" in refused


def test_fewer_bits_are_predicted_to_be_worth_more(guide: Guide) -> None:
    plain, fp8 = guide.predict(PLAN), guide.predict(turned(quantization="fp8"))
    assert plain is not None and fp8 is not None
    assert 1.1 < math.exp(fp8 - plain) < 2.5


def test_settings_that_speed_does_not_know_change_no_prediction(guide: Guide) -> None:
    assert guide.predict(turned(stream_interval="4")) == guide.predict(PLAN)


def test_the_kv_cache_that_the_engine_will_print_is_known(guide: Guide) -> None:
    """814,368 tokens were printed on an H200 for this plan (evidence/tune-h200)."""
    found = guide.kv_cache_tokens(PLAN)
    assert found is not None and abs(found / 814_368 - 1) < 0.01


def test_the_share_within_the_limits_falls_as_the_tail_passes_them() -> None:
    def share(p50: float, p99: float) -> float:
        return attained(Estimate(tpot_ms=Spread(p50=p50, p99=p99)), SLO)

    assert share(10, 20) > 0.99
    assert share(20, 25) == pytest.approx(0.99, abs=0.01)
    assert share(25, 40) == pytest.approx(0.5, abs=0.01)
    assert share(50, 60) < 0.01
    assert attained(Estimate(), SLO) == 1.0


def test_what_the_engine_prints_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x GPU KV cache size: 1,234 tokens\nINFO GPU KV cache size: 814,368 tokens\n")
    assert printed_tokens(log) == 814_368
    assert printed_tokens(tmp_path / "none") is None


# -- a stand-in engine: our fake server as a process of its own


class Engine:
    """Serves with the fake server; `max_num_seqs` 1 makes it slow, `boom` ends it at once."""

    TITLE, ENVIRONMENT, DEVICES = "stand-in", "onnx", frozenset({"cpu"})

    def launch(self, plan: Plan, port: int) -> Launch:
        pace = 30.0 if plan.setting("max_num_seqs") == "1" else 1.0
        code = (
            "import time\n"
            "from model_optimizer.testing.fake_server import Behaviour, FakeServer\n"
            f"if {plan.setting('boom') == '1'}: raise SystemExit('RuntimeError: CUDA out of memory')\n"
            "print('GPU KV cache size: 4,096 tokens', flush=True)\n"
            f"with FakeServer(Behaviour(ttft_ms=2.0, tpot_ms={pace}), port={port}):\n"
            "    time.sleep(600)\n"
        )
        return Launch(environment="onnx", arguments=("-c", code), served_name="fake", ready_path="/v1/models")


def runner(tmp_path: Path, **given: object) -> Runner:
    made = stand_in.runner(tmp_path, **{"engine": Engine(), **given})
    return replace(made, loads=replace(made.loads, seconds=0.6, probe_s=0.4))


def test_an_order_is_a_start_a_load_and_an_end(tmp_path: Path) -> None:
    found = runner(tmp_path, predicted_tokens=lambda plan: 4000)(Order(number=3, plan=PLAN, settings={}))
    assert found.state == "measured"
    assert found.points[0].completed > 5
    assert (found.kv_cache_tokens, found.kv_cache_tokens_predicted) == (4096, 4000)
    assert (tmp_path / "trial-003.log").is_file()


def test_a_hopeless_one_ends_after_the_probe(tmp_path: Path) -> None:
    order = Order(number=1, plan=turned(max_num_seqs="1"), settings={}, hopeless_below=1e6)
    found = runner(tmp_path)(order)
    assert found.state == "aborted" and found.points


def test_a_start_that_fails_is_an_outcome_with_its_cause(tmp_path: Path) -> None:
    plan = replace(PLAN, settings=(Setting(name="boom", value="1", because="", source="user"),))
    found = runner(tmp_path)(Order(number=1, plan=plan, settings={}))
    assert found.state == "failed"
    assert found.because and "cuda-oom" in found.because


def test_a_gpu_that_others_use_is_not_measured(tmp_path: Path) -> None:
    ticks = iter(range(0, 1000, 5))
    made = runner(tmp_path, foreign_bytes=lambda: (60, 100), clock=lambda: float(next(ticks)))
    with pytest.raises(HostError, match="another process"):
        made(Order(number=1, plan=PLAN, settings={}))


def test_memory_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    held = iter([(60, 100), (30, 100), (1, 100)])
    found = runner(tmp_path, foreign_bytes=lambda: next(held))(Order(number=1, plan=PLAN, settings={}))
    assert found.state == "measured"


# -- the folder


def test_a_folder_that_is_used_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="not empty"):
        studies.named(tmp_path, TuneRequest(target="m"), now=datetime.now(UTC))


def test_a_request_survives_the_folder(tmp_path: Path) -> None:
    asked = TuneRequest(target="m", values={"a": ("1", "")}, prompt_tokens=Lengths.fixed(9), slo=SLO)
    folder = studies.named(tmp_path / "s", asked, now=datetime.now(UTC))
    assert not folder.exists()
    studies.create(folder, asked)
    assert studies.reopen(folder) == asked
    with pytest.raises(UsageError, match="holds no study"):
        studies.reopen(tmp_path)


def test_settings_and_variables_of_a_user_are_in_the_default() -> None:
    found = studies._with(PLAN, {"max-model-len": "99", "env:MOPT_X": "1"})
    assert found.setting("max-model-len") == "99"
    assert found.env == {"MOPT_X": "1"}
    assert all(not s.name.startswith("env:") for s in found.settings)


def test_only_defaults_that_can_change_speed_are_put_back() -> None:
    found = changed_defaults(PLAN, replace(PLAN, engine_version="0.33.0"))
    assert found["VLLM_ALLREDUCE_USE_FLASHINFER"] == ("false", "true")
    assert "allowed-origins" not in found
    assert changed_defaults(PLAN, PLAN) == {}


def test_the_recorded_study_of_an_h200_reads_and_shows(tmp_path: Path) -> None:
    """evidence/tune-h200: three starts of real vLLM; the time ended before the proof."""
    import gzip

    from model_optimizer.cli.render_tune import study_text

    kept = Path(__file__).parents[2] / "evidence" / "tune-h200" / "study-2026-11-30.json.gz"
    found = codec.loads(gzip.decompress(kept.read_bytes()), Study)
    text = study_text(found, tmp_path)
    assert "The default stays" in text
    assert "quantization=fp8" in text
    best = max(t.score.value for t in found.trials if t.score)
    assert found.trials[0].score is not None and best / found.trials[0].score.value > 1.2

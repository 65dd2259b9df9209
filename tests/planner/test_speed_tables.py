"""The adapter to tables of kernel times: what is asked, what is refused, how sizes between are filled in."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import HostError, ToolError, codec
from model_optimizer.core.grid import GridRequest, StepGrid
from model_optimizer.core.steps import Batch
from model_optimizer.planner.speed import roofline, tables
from model_optimizer.system import step_tables

from .speed_cases import setup

RECORDED = Path(__file__).parents[1] / "data/step-tables"


def grid(name: str = "bf16") -> StepGrid:
    """What aiconfigurator-core 0.12.0 said of Qwen3-8B on an H100 SXM."""
    return codec.load(RECORDED / f"{name}.json", StepGrid)


def made(number: str = "bf16", **more: object) -> tables.Tables:
    return tables.tables(setup("h100", number, **more), grid(number))


def test_a_request_speaks_the_words_of_the_tables() -> None:
    asked = tables.request(setup("h200", "fp8", kv_bits=8, tensor_parallel=2))
    assert isinstance(asked, GridRequest)
    assert (asked.system, asked.engine, asked.version) == ("h200_sxm", "vllm", "0.24.0")
    assert (asked.gemm_mode, asked.moe_mode, asked.kv_mode, asked.tensor_parallel) == ("fp8", None, "fp8", 2)
    mixture = tables.request(setup("h100", "bf16", "Qwen/Qwen3-30B-A3B"))
    assert isinstance(mixture, GridRequest) and mixture.moe_mode == "bfloat16"


@pytest.mark.parametrize(
    ("gpu", "number", "more", "said"),
    [
        ("rtx 4090", "bf16", {}, "no kernel of GeForce RTX 4090"),
        ("h100", "awq_int4", {}, "no kernel of `awq_int4`"),
        ("h100", "fp8_block", {}, "the host's launches"),
        ("h100", "bf16", {"eager": True}, "CUDA graphs"),
        ("h100", "bf16", {"pipeline_parallel": 2}, "one pipeline stage"),
    ],
)
def test_where_there_are_no_tables_the_reason_is_given(
    gpu: str, number: str, more: dict[str, Any], said: str
) -> None:
    refused = tables.request(setup(gpu, number, **more))
    assert isinstance(refused, tables.Refused)
    assert said in refused.because


def test_blocks_of_fp8_have_tables_in_other_engines() -> None:
    assert isinstance(tables.request(setup("h100", "fp8_block", engine="sglang", version=None)), GridRequest)


def test_at_a_place_of_the_grid_the_grid_answers() -> None:
    found, recorded = made(), grid()
    decode = recorded.decode_ms[recorded.sequences.index(64)][recorded.contexts.index(1024)]
    at = recorded.tokens.index(64)
    slower = 1 + (1 / found.sustained - 1) * 64 / (64 + tables.COMPUTED)
    kernels = recorded.rest_ms[at] * slower + recorded.head_ms[at] + decode
    assert found.decode_ms(64, 1024) == pytest.approx(kernels + found.host.gap_ms)


def test_between_places_times_lie_between() -> None:
    found = made()
    assert found.decode_ms(64, 1024) < found.decode_ms(80, 1024) < found.decode_ms(128, 1024)
    assert found.decode_ms(64, 1024) < found.decode_ms(64, 1500) < found.decode_ms(64, 2048)
    assert found.prefill_ms(1024) < found.prefill_ms(1500) < found.prefill_ms(2048)


def test_many_short_prompts_cost_less_attention_than_one_long_one() -> None:
    found = made()
    assert found.prefill_ms(128, sequences=64) < found.prefill_ms(8192)


def test_tables_and_roofline_agree_where_both_know() -> None:
    for number in ("bf16", "fp8"):
        by_table, by_arithmetic = made(number), roofline(setup("h100", number))
        for batch in (
            Batch(sequences=1, context=500),
            Batch(sequences=64, context=1000),
            Batch(sequences=256, context=200),
            Batch(sequences=32, context=500, tokens=2048, chunks=2, pairs=2048 * 512),
        ):
            assert by_table.mixed_ms(batch) == pytest.approx(by_arithmetic.mixed_ms(batch), rel=0.25)


def test_provenance_names_the_release_that_was_measured() -> None:
    assert "kernels of 0.24.0 stand for those of 0.30.0" in made().provenance
    assert "stand for" not in made(version="0.24.0").provenance


def request() -> GridRequest:
    asked = tables.request(setup())
    assert isinstance(asked, GridRequest)
    return asked


def test_what_was_sampled_once_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def sample(asked: GridRequest, *, progress: object) -> StepGrid:
        calls.append(asked.system)
        return grid()

    monkeypatch.setattr(step_tables, "sample", sample)
    monkeypatch.setattr(step_tables, "installed", lambda: "0.12.0")
    first = step_tables.load(request(), progress=lambda *_: None)
    monkeypatch.setattr(step_tables, "installed", lambda: None)
    assert step_tables.load(request(), progress=lambda *_: None) == first == grid()
    assert calls == ["h100_sxm"]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_tables, "installed", lambda: None)
    with pytest.raises(HostError) as error:
        step_tables.load(request(), progress=lambda *_: None)
    assert "model-optimizer[tables]" in error.value.hint[0]


def test_the_extra_that_is_named_brings_the_release_that_is_read() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["tables"]
    assert extra == [f"{step_tables.PACKAGE}=={step_tables.SUPPORTED}.*"]


def test_what_the_package_raises_becomes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: GridRequest) -> Any:
        raise RuntimeError("context MLA data missing\nand more")

    monkeypatch.setattr(step_tables, "_compile", broken)
    with pytest.raises(ToolError) as error:
        step_tables.sample(request(), progress=lambda *_: None)
    assert error.value.cause == ("context MLA data missing",)


def test_different_questions_have_different_files() -> None:
    names = {
        step_tables._key(asked)  # pyright: ignore[reportPrivateUsage]
        for asked in (
            tables.request(setup()),
            tables.request(setup(number="fp8")),
            tables.request(setup(kv_bits=8)),
            tables.request(setup(tensor_parallel=2)),
            tables.request(setup("h200")),
            tables.request(setup(name="meta-llama/Meta-Llama-3.1-8B")),
        )
        if isinstance(asked, GridRequest)
    }
    assert len(names) == 6


@pytest.mark.slow
@pytest.mark.skipif(step_tables.installed() is None, reason="aiconfigurator-core 0.12 is not installed")
def test_the_package_still_says_what_was_recorded() -> None:
    found = step_tables.sample(request(), progress=lambda *_: None)
    assert found.rest_ms == pytest.approx(grid().rest_ms)
    assert found.prompt_ms == pytest.approx(grid().prompt_ms)

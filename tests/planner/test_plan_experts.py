"""Engines side by side that share their experts: memory, times, and when a plan chooses them."""

import pytest

from model_optimizer.core import FitQuestion, Lengths, Workload
from model_optimizer.core.steps import Batch
from model_optimizer.facts import gpus, speed
from model_optimizer.planner import service
from model_optimizer.planner.decide import steady
from model_optimizer.planner.decide.grouped import grouped
from model_optimizer.planner.fit import fit
from model_optimizer.planner.memory import card
from model_optimizer.planner.service import Limits
from model_optimizer.planner.speed import Setup, links, roofline
from model_optimizer.schemes import fp8_block

from .plans import page, plan, read, reasons
from .speed_cases import setup

V3 = "deepseek-ai/DeepSeek-V3"
GIB = 2**30
LOAD = {"p": 2000, "o": 300, "gpus": 8}


def asked(**choices: object) -> FitQuestion:
    return FitQuestion(model=read(V3).spec, gpu=card.named("h200"), max_model_len=8192, **choices)  # type: ignore[arg-type]


def test_attention_is_repeated_and_experts_are_spread() -> None:
    shared = fit(asked(data_parallel=8, expert_parallel=True))
    cut = fit(asked(tensor_parallel=8))
    sizes = {term.name: term.bytes for term in shared.terms}
    other = {term.name: term.bytes for term in cut.terms}
    assert sizes["weights: experts"] == pytest.approx(other["weights: experts"], rel=0.001)
    assert sizes["weights: attention"] > 4 * other["weights: attention"]
    assert 8 * shared.kv_cache_tokens > 3 * cut.kv_cache_tokens, "each engine keeps its own requests"


def test_without_it_every_engine_holds_all_experts() -> None:
    assert not fit(asked(data_parallel=8)).fits


def test_a_step_computes_a_share_of_the_experts_for_everybody() -> None:
    setup = Setup(
        model=read(V3).spec, gpu=gpus.find("h200"), scheme=fp8_block.SCHEME, version="0.33.0",
        expert_parallel=True,
    )  # fmt: skip
    eight, sixteen = grouped(setup, 8, roofline), grouped(setup, 16, roofline)
    assert eight.decode_ms(32, 2000) < roofline(setup).decode_ms(32, 2000), "fewer experts are read"
    assert eight.prefill_ms(4096) < sixteen.prefill_ms(4096) < 2 * eight.prefill_ms(4096), "more to exchange"


def test_what_experts_exchange_is_counted_by_hand() -> None:
    """DeepSeek-V3: 7168 numbers a token, 8 experts of it; 8 and 32 GPUs."""
    assert links.gathered(7168, 8).dispatched == 7 * 7168 * 2
    assert links.gathered(7168, 8).bytes == 2 * 7 * 7168 * 2, "an all-reduce of 8 x the tokens: 2 x 7/8 x 8"
    met = 7 * (1 - (7 / 8) ** 8)
    assert links.routed(7168, 8, 8, number_bytes=1).dispatched == pytest.approx(met * 7168)
    assert links.routed(7168, 8, 8, number_bytes=1).combined == pytest.approx(met * 7168 * 2)
    assert links.routed(7168, 2, 1).bytes == pytest.approx(links.gathered(7168, 2).bytes / 2)
    assert links.routed(7168, 32, 8).bytes < 0.25 * links.gathered(7168, 32).bytes


def test_the_exchange_of_a_step_takes_its_bytes_over_the_link() -> None:
    setup = Setup(
        model=read(V3).spec, gpu=gpus.find("h200"), scheme=fp8_block.SCHEME, version="0.33.0",
        expert_parallel=True,
    )  # fmt: skip
    one, kernels = grouped(setup, 8, roofline), speed.generation((9, 0))
    assert one.reduces == 58, "layers of experts, three of 61 are dense"
    found = kernels.all_reduce["8"]
    seconds = 58 * (found.launch_us * 1e-6 + 32 * 2 * 7 * 7168 * 2 / (450e9 * found.bandwidth))
    batch = Batch(sequences=32, context=1000)
    assert one.explain(batch).parts["network"] == pytest.approx(seconds * 1e3)


def test_tensor_parallelism_is_simpler_until_its_cache_is_too_small() -> None:
    light = plan(V3, "h200", qps=2.0, **LOAD)
    assert (light.tensor_parallel, light.data_parallel) == (8, 1)
    assert "in step" in reasons(light, "vllm")
    over = next(row for row in light.crossover if row.parallel == "DP8 EP")
    assert over.above < 12
    heavy = plan(V3, "h200", qps=12.0, **LOAD)
    assert (heavy.tensor_parallel, heavy.data_parallel, heavy.expert_parallel) == (1, 8, 8)
    assert heavy.command[-3:] == ("--data-parallel-size", "8", "--enable-expert-parallel")
    assert "one exchange a layer of experts" in page(heavy, "parallelism")
    assert heavy.gpus == 8


def test_links_without_nvlink_do_not_carry_it() -> None:
    found = plan("deepseek-ai/DeepSeek-V2-Lite", "l20", gpus=4, qps=2.0, p=512, o=128)
    assert not any("DP" in row.parallel for row in (*found.rejected, *found.crossover))


def test_the_steady_state_of_experts_is_near_the_load_played_through() -> None:
    """Prompts come whole: spread over all steps they would read every expert in each of them."""
    steps = roofline(setup("h200", "fp8_block", "deepseek-ai/DeepSeek-V3", tensor_parallel=8))
    work = Workload(
        arrivals="poisson", qps=2.0, prompt_tokens=Lengths.fixed(2000), output_tokens=Lengths.fixed(500)
    )
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=8192)
    quick = steady.at_rate(steps, limits, steady.shape_of(work), 2.0)
    played = service.estimate(service.Question(steps=steps, limits=limits, workload=work))
    assert quick.e2e_ms == pytest.approx(played.e2e_ms.mean, rel=0.1)
    assert quick.tpot_p99_ms == pytest.approx(played.tpot_ms.p99, rel=0.2)

"""Whether a quantized candidate is worth it, under the load that was asked for."""

import pytest

from model_optimizer.core import Candidate, LoadPoint, Measurement, Percentiles, Plan, Slo, Workload
from model_optimizer.core.record import Fate
from model_optimizer.planner import pick
from model_optimizer.planner.worth import worth

MIB = 1 << 20
LEVELS = (1, 32, 128)

# Output tokens a second at 512/128 tokens and concurrency 1, 32, 128: Qwen3-8B with dummy weights on an H200,
# vLLM 0.25.1 (evidence/vllm-0.25.1-h200).
H200 = {"bf16": (179, 2996, 5532), "fp8": (253, 3743, 7573), "awq_int4": (213, 3323, 5803)}


def candidate(
    scheme: str,
    speeds: tuple[float, ...],
    *,
    memory: int | None = None,
    engine: str = "vllm",
    fate: Fate = "served",
) -> Candidate:
    points = tuple(
        LoadPoint(
            target=f"concurrency {level}",
            completed=10,
            failed=0,
            window_s=1,
            output_tokens_per_s=speed,
            ttft_ms=Percentiles(p50=50, p90=50, p99=50),
            memory_bytes=memory,
        )
        for level, speed in zip(LEVELS, speeds, strict=False)
    )
    plan = Plan(
        model="m", checkpoint="/m", workload=Workload(), slo=Slo(), engine=engine, scheme=scheme, format="f"
    )
    name = "reference" if fate == "reference" else f"{engine}-{scheme}"
    return Candidate(name=name, plan=plan, measurement=Measurement(points=points), fate=fate)


BASELINE = candidate("fp32", (20, 40, 60), engine="pytorch", fate="reference")


def test_fp8_on_an_h200_is_worth_it_and_nothing_more_is_said() -> None:
    run = [BASELINE, candidate("bf16", H200["bf16"]), candidate("fp8", H200["fp8"])]
    (found,) = worth(run)
    assert (found.candidate, found.original, found.advice) == ("vllm-fp8", "vllm-bf16", "keep")
    assert "1.4x at concurrency 1, 1.2x at concurrency 32, 1.4x at concurrency 128" in found.because
    assert "revert" not in pick(run, Slo()).because


def test_weights_of_4_bits_gain_less_the_more_requests_there_are() -> None:
    """On the H200 the gain shrinks from 19 % at one request to 5 % at 128: no faster under that load."""
    run = [
        candidate("bf16", H200["bf16"], memory=140 * MIB),
        candidate("awq_int4", (213, 3323, 5803 * 0.99), memory=140 * MIB),
    ]
    (found,) = worth(run)
    assert found.advice == "revert"
    assert "neither faster under this load nor smaller" in found.because


def test_slower_under_the_load_means_revert_even_when_faster_alone() -> None:
    run = [BASELINE, candidate("bf16", (100, 1000, 5000)), candidate("gptq_int4", (150, 1100, 4000))]
    (found,) = worth(run)
    assert found.advice == "revert"
    assert "slower under this load, faster only at concurrency 1" in found.because
    chosen = pick(run, Slo())
    assert chosen.name == "vllm-bf16"
    assert "vllm-gptq_int4" in chosen.because
    assert "revert unless memory binds" in chosen.because


def test_the_load_that_was_asked_for_decides_also_where_the_original_is_faster_at_another() -> None:
    (found,) = worth([candidate("bf16", (42, 38)), candidate("int8", (16, 41))])
    assert found.advice == "keep"
    (found,) = worth([candidate("bf16", (42, 38)), candidate("int8", (60, 30))])
    assert "slower under this load, faster only at concurrency 1; revert" in found.because


@pytest.mark.parametrize(
    ("mine", "words"), [(133, "revert, since it is no smaller either"), (80, "revert unless memory binds")]
)
def test_memory_is_no_reason_to_keep_what_is_no_smaller(mine: int, words: str) -> None:
    run = [
        candidate("bf16", (100, 1000), memory=129 * MIB), candidate("int8", (40, 400), memory=mine * MIB),
    ]  # fmt: skip
    assert worth(run)[0].because.endswith(words)


def test_as_fast_and_smaller_is_the_users_choice() -> None:
    run = [
        BASELINE,
        candidate("bf16", (100, 1000, 5000), memory=200 * MIB),
        candidate("int8", (100, 1000, 5000), memory=120 * MIB),
    ]
    (found,) = worth(run)
    assert found.advice == "choose"
    assert "80 MiB smaller; revert if that memory is not needed" in found.because
    assert "revert if that memory is not needed" in pick(run, Slo()).because


def test_another_engines_speed_says_nothing_of_the_format() -> None:
    """The original is bf16 behind the same engine, not the slow baseline."""
    run = [BASELINE, candidate("bf16", (100, 1000, 5000)), candidate("int8", (90, 900, 4500))]
    assert worth(run)[0].original == "vllm-bf16"
    assert worth([BASELINE, candidate("int8", (90, 900, 4500))])[0].original == "reference"


def test_nothing_is_reverted_to_what_does_not_fit() -> None:
    """Where memory binds, the original behind the same engine was not measured: only what fits is beside it."""
    (found,) = worth([BASELINE, candidate("int4_rtn", (25, 60, 80))])
    assert (found.original, found.advice) == ("reference", "keep")
    (found,) = worth([BASELINE, candidate("bf16", (30, 70, 90)), candidate("int4_rtn", (25, 60, 80))])
    assert (found.original, found.advice) == ("vllm-bf16", "revert")


@pytest.mark.parametrize("points", [(), (0.0,)])
def test_nothing_is_advised_without_a_common_load(points: tuple[float, ...]) -> None:
    assert worth([candidate("bf16", points), candidate("int8", (10.0,))]) == ()

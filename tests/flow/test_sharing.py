"""What each of several servers gets of a GPU, and when they cannot stand by each other."""

from dataclasses import replace

import pytest
from tests.flow.test_tune import PLAN, SLO, WORK, turned

from model_optimizer import api
from model_optimizer.core import Lengths, Workload
from model_optimizer.core.lengths import parse
from model_optimizer.core.study import Shape
from model_optimizer.engines import vllm
from model_optimizer.facts import vllm as releases
from model_optimizer.flow.sharing import (
    KEPT,
    LOADING,
    MARGIN,
    SPREADS,
    OnCpu,
    OnGpu,
    Shares,
    apart,
    tokens_in_flight,
    with_share,
)
from model_optimizer.flow.tune import Guide, Loads
from model_optimizer.planner.memory import card

H200 = card.named("h200")
LOADS = Loads(workload=WORK, slo=SLO, levels=(32.0, 64.0))


def on_gpu(loads: Loads = LOADS, used: int = 0) -> OnGpu:
    guide = Guide(
        api.read_model("Qwen/Qwen3-8B").spec,
        H200,
        loads,
        fit=api.fit,
        estimate=lambda question: api.estimate(question, progress=lambda text, share: None),
        scheme=api.scheme,
    )
    return OnGpu(
        guide=guide,
        loads=loads,
        total_bytes=H200.total_bytes,
        held=lambda: (used, H200.total_bytes),
    )


def shared(found: Shares | str) -> Shares:
    assert isinstance(found, Shares), found
    return found


def test_four_servers_of_an_8b_model_share_an_h200() -> None:
    plans = [
        PLAN,
        turned(quantization="fp8"),
        turned(max_num_batched_tokens="2048"),
        turned(stream_interval="4"),
    ]
    found = shared(on_gpu()(plans, (64.0,)))
    shares = [float(b["gpu-memory-utilization"]) for b in found.beside]
    assert sum(shares) < KEPT
    assert shares[1] < shares[0]  # half the bytes of the weights
    command = vllm.command(found.plans[1])
    assert command[command.index("--kv-cache-memory-bytes") + 1] == found.beside[1]["kv-cache-memory-bytes"]
    assert command[command.index("--gpu-memory-utilization") + 1] == found.beside[1]["gpu-memory-utilization"]
    assert not found.one_by_one


def test_each_cache_holds_its_load() -> None:
    found = shared(on_gpu()([PLAN, turned(max_num_seqs="16")], (64.0,)))
    all_64, only_16 = (int(b["kv-cache-memory-bytes"]) / 147_456 for b in found.beside)
    assert 64 * 1152 <= all_64 < 1.2 * 64 * 1152
    assert 16 * 1152 <= only_16 < 1.3 * 16 * 1152


def test_lengths_that_vary_need_more_than_their_mean() -> None:
    steady = Workload(prompt_tokens=Lengths.fixed(1005), output_tokens=Lengths.fixed(128))
    mixed = replace(steady, prompt_tokens=Lengths(kind="empirical", numbers=(10.0, 2000.0)))
    assert tokens_in_flight(steady, 64) == 64 * 1133
    assert tokens_in_flight(mixed, 64) > 1.2 * tokens_in_flight(steady, 64)
    shapes = tuple(
        Shape(name=n, prompt_tokens=w.prompt_tokens, output_tokens=w.output_tokens)
        for n, w in (("steady", steady), ("mixed", mixed))
    )
    one, both = (
        int(shared(on_gpu(replace(LOADS, shapes=some))([PLAN], (64.0,))).beside[0]["kv-cache-memory-bytes"])
        for some in (shapes[:1], shapes)
    )
    assert both > 1.2 * one


def test_the_cache_that_a_shared_server_will_print_is_known_to_the_token() -> None:
    """evidence/tune-h200: vLLM 0.25.1 printed 148,144 tokens for four servers with this many bytes."""
    asked = on_gpu()
    for plan in (PLAN, turned(quantization="fp8", max_num_batched_tokens="4096")):
        share = {"gpu-memory-utilization": "0.226", "kv-cache-memory-bytes": "21845993470"}
        assert asked.guide.kv_cache_tokens(with_share(plan, share)) == 148_144


def test_the_four_arms_of_the_recorded_second_look_get_two_deviations() -> None:
    """evidence/tune-h200: with three, 141 GiB were asked for where 136 GiB were there."""
    shapes = (
        Shape(name="plain", prompt_tokens=parse("uniform:512,1536"), output_tokens=parse("uniform:64,192")),
        Shape(name="mixed", prompt_tokens=parse("choice:10,2000"), output_tokens=parse("uniform:64,192")),
    )
    asked = on_gpu(replace(LOADS, levels=(64.0, 96.0), shapes=shapes))
    plans = [
        turned(**more)
        for more in (
            {},
            {"quantization": "fp8", "max_num_batched_tokens": "4096"},
            {"max_num_batched_tokens": "4096"},
            {"quantization": "fp8"},
        )
    ]
    three = asked.needs(plans, (64.0, 96.0), SPREADS[0])
    assert not isinstance(three, str)
    assert sum(map(sum, three)) + LOADING > 140 * 2**30
    assert {round(cache / 2**30, 1) for _, cache in three} == {20.3}
    found = shared(asked(plans, (64.0, 96.0)))
    assert {round(int(b["kv-cache-memory-bytes"]) / 2**30, 1) for b in found.beside} == {18.9}


def test_too_many_servers_or_somebody_else_are_refused_with_the_numbers() -> None:
    many = on_gpu()([PLAN] * 8, (64.0,))
    assert isinstance(many, str) and "8 servers" in many and "GiB" in many
    taken = on_gpu(used=int(0.8 * H200.total_bytes))([PLAN, PLAN], (64.0,))
    assert isinstance(taken, str)


def test_a_plan_that_cannot_start_is_refused() -> None:
    found = on_gpu()([PLAN, turned(gpu_memory_utilization="0.1")], (64.0,))
    assert isinstance(found, Shares) or "fit" in found  # its own share takes the place of the setting
    broken = on_gpu()([PLAN, turned(kv_cache_dtype="int2")], (64.0,))
    assert isinstance(broken, str)


def test_a_release_without_the_option_starts_one_by_one() -> None:
    old = replace(PLAN, engine_version="0.10.0")
    found = shared(on_gpu()([old, old], (16.0,)))
    assert found.one_by_one
    assert all("kv-cache-memory-bytes" not in beside for beside in found.beside)


def test_what_is_worth_its_memory_stands_apart() -> None:
    assert "gpu-memory-utilization" in (apart(turned(gpu_memory_utilization="0.95"), PLAN) or "")
    assert apart(turned(max_num_seqs="8"), PLAN) is None
    same = turned(gpu_memory_utilization="0.8")
    assert apart(same, same) is None


def test_the_memory_of_a_host_is_added_up() -> None:
    host = api.probe()
    from model_optimizer.engines import onnxruntime

    model = api.read_model("Qwen/Qwen3-8B").spec
    plan = replace(PLAN, engine="onnxruntime", scheme="fp32", format="onnx_genai")
    made = OnCpu(engine=onnxruntime, model=model, host=host, scheme=api.scheme, loads=LOADS)
    assert isinstance(made([plan] * 40, (64.0,)), str)
    tiny = replace(made, host=replace(host, memory_available_bytes=10**15))
    found = shared(tiny([plan] * 4, (64.0,)))
    assert found.plans == (plan,) * 4 and found.beside == ({},) * 4
    unknown = replace(made, host=replace(host, memory_available_bytes=None))
    assert isinstance(unknown([plan], (1.0,)), str)


@pytest.mark.parametrize("name", ["gpu-memory-utilization", "kv-cache-memory-bytes"])
def test_the_options_are_known_to_the_release_that_is_measured(name: str) -> None:
    assert releases.takes("0.25.1", f"--{name}")
    assert releases.takes("0.10.0", f"--{name}") is (name == "gpu-memory-utilization")


def test_a_start_may_hold_more_for_a_moment() -> None:
    """The sum of all shares and that moment stay below what is given away."""
    found = shared(on_gpu()([PLAN] * 4, (64.0,)))
    total = sum(float(b["gpu-memory-utilization"]) for b in found.beside) * H200.total_bytes
    assert total + LOADING <= KEPT * H200.total_bytes * 1.01


def test_a_cache_that_is_a_little_too_large_is_made_smaller_before_it_is_given_up() -> None:
    """Four servers of evidence/tune-h200: 5 GiB too much at three deviations, run at two."""
    mixed = Lengths(kind="empirical", numbers=(10.0, 2000.0))
    answers = Lengths(kind="uniform", numbers=(64.0, 192.0))
    loads = replace(LOADS, shapes=(Shape(name="mixed", prompt_tokens=mixed, output_tokens=answers),))
    plans = [PLAN, turned(quantization="fp8"), PLAN, turned(quantization="fp8")]
    found = shared(on_gpu(loads)(plans, (96.0,)))
    cache = int(found.beside[0]["kv-cache-memory-bytes"])
    wide, narrow = (tokens_in_flight(loads.workloads[0][1], 96, s) * MARGIN * 147_456 for s in SPREADS)
    assert cache == pytest.approx(narrow, rel=0.01) and narrow < wide
    roomy = shared(on_gpu(loads)(plans[:2], (96.0,)))
    assert int(roomy.beside[0]["kv-cache-memory-bytes"]) == pytest.approx(wide, rel=0.01)

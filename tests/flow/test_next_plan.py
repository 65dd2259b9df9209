"""What is proposed after a start that memory stopped."""

import dataclasses
from typing import Any

import pytest

from model_optimizer.core import Fit, Lengths, Plan, Setting, Slo, Workload, plugins
from model_optimizer.diagnose import of_text
from model_optimizer.engines import vllm, vllm_cpu
from model_optimizer.flow.next_plan import SHORT, Change, Failed, next_change

SAID = (
    "ValueError: To serve at least one request with the model's max seq len (40960), (5.63 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (2.81 GiB). Based on the available memory, the "
    "estimated maximum model length is 20470. Try increasing `gpu_memory_utilization`."
)
SILENT = SAID.replace(", the estimated maximum model length is 20470", "")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
BUSY = (
    "ValueError: Free memory on device cuda:0 (12.0/24.0 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 21.6 GiB). Decrease GPU memory utilization."
)


def plan(**settings: str) -> Plan:
    return Plan(
        model="m",
        checkpoint="/m",
        workload=Workload(
            task="generate", prompt_tokens=Lengths.fixed(1024), output_tokens=Lengths.fixed(128)
        ),
        slo=Slo(),
        engine="vllm",
        scheme="bf16",
        format="safetensors",
        settings=tuple(
            Setting(name=name.replace("_", "-"), value=value, because="so", source="derived")
            for name, value in settings.items()
        ),
    )


def failed(said: str, work: Plan, **more: Any) -> Failed:
    found = of_text([said]).primary
    assert found is not None
    return Failed(plan=work, found=found, words=vllm.WORDS, said=said, **more)


def fit(*, fits: bool, longest: int | None = None) -> Fit:
    return Fit(
        fits=fits, binding="kv", because="", weights_bytes=0, activation_bytes=0, cuda_graph_bytes=0,
        non_torch_bytes=0, kv_cache_bytes=0, kv_bytes_per_token=1, kv_cache_tokens=1, max_concurrency=1.0,
        largest_max_model_len=longest, terms=(), model="m", gpu="g", engine="vllm", scheme="bf16",
        total_bytes=1, budget_bytes=1, max_model_len=1,
    )  # fmt: skip


def settings(change: Change | None) -> dict[str, str]:
    assert change is not None
    return dict(change.settings)


def test_what_the_engine_says_fits_comes_first_in_whole_blocks() -> None:
    change = next_change(failed(SAID, plan(max_model_len="40960")))
    assert settings(change) == {"max-model-len": "20464"}
    assert change is not None
    assert "own message" in change.because


def test_a_context_shorter_than_the_load_says_so() -> None:
    said = SAID.replace("20470", "512")
    change = next_change(failed(said, plan(max_model_len="40960")))
    assert change is not None
    assert "the longest requests of the load need 1,152" in change.because


def test_without_the_engines_word_the_planner_says_what_fits() -> None:
    found = next_change(
        failed(SILENT, plan(max_model_len="40960"), fits=lambda p: fit(fits=_length(p) <= 9000, longest=9001))
    )
    assert settings(found) == {"max-model-len": "8992"}


def _length(work: Plan) -> int:
    return int(work.setting("max-model-len") or 0)


def test_a_step_that_the_planner_knows_not_to_be_enough_is_left_out() -> None:
    """Half the sequences would not do; a KV cache of 8 bits would."""

    def fits(work: Plan) -> Fit:
        return fit(fits=work.setting("kv-cache-dtype") == "fp8")

    work = plan(max_model_len="40960", max_num_seqs="64")
    found = next_change(failed(SILENT, work, fits=fits, compute_capability=(9, 0)))
    assert settings(found) == {"kv-cache-dtype": "fp8"}


def test_the_order_is_length_then_requests_then_cache_then_graphs() -> None:
    work, order = plan(max_model_len="40960", max_num_seqs="2"), list[str]()
    for _ in range(40):
        change = next_change(failed(SAID, work, compute_capability=(9, 0)))
        if change is None:
            break
        order += change.settings
        work = change.of(work)
    else:
        pytest.fail("it never ends")
    kinds = list(dict.fromkeys(order))
    assert kinds == ["max-model-len", "max-num-seqs", "kv-cache-dtype", "enforce-eager"]
    assert order[-1] == "enforce-eager"


def test_no_8_bits_where_the_gpu_cannot() -> None:
    found = next_change(failed(SILENT, plan(), compute_capability=(8, 6)))
    assert settings(found) == {"enforce-eager": "1"}


def test_memory_beside_the_cache_is_made_by_fewer_requests() -> None:
    assert settings(next_change(failed(OOM, plan(max_num_seqs="64")))) == {"max-num-seqs": "32"}
    assert settings(next_change(failed(OOM, plan(gpu_memory_utilization="0.95")))) == {
        "gpu-memory-utilization": "0.9"
    }


def test_a_gpu_that_others_hold_is_shared() -> None:
    change = next_change(failed(BUSY, plan(gpu_memory_utilization="0.9")))
    assert settings(change) == {"gpu-memory-utilization": "0.47"}

    def fits(work: Plan) -> Fit:
        return fit(fits=_length(work) <= 4096, longest=4096)

    both = next_change(failed(BUSY, plan(max_model_len="9000"), fits=fits))
    assert settings(both) == {"gpu-memory-utilization": "0.47", "max-model-len": "4096"}


def test_on_a_cpu_the_cache_grows_where_there_is_memory() -> None:
    work = dataclasses.replace(
        plan(),
        engine="vllm_cpu",
        settings=(
            Setting(name="max_model_len", value="40960", because="", source="user"),
            Setting(name="kv_cache_memory_bytes", value="1000", because="", source="derived"),
        ),
    )
    on_cpu = dataclasses.replace(failed(SAID, work, spare_bytes=20 * 2**30), words=vllm_cpu.WORDS)
    assert settings(next_change(on_cpu)) == {"kv_cache_memory_bytes": str(-(-563 * 11 * 2**30 // 1000))}
    small = dataclasses.replace(on_cpu, spare_bytes=4 * 2**30)
    assert settings(next_change(small)) == {"max_model_len": "20464"}


@pytest.mark.parametrize(
    "said", ["OSError: [Errno 98] Address already in use", "Failed to load model - not enough GPU memory"]
)
def test_what_no_setting_mends_has_no_next_plan(said: str) -> None:
    found = of_text([said]).primary
    assert found is not None
    assert next_change(Failed(plan=plan(), found=found, words=vllm.WORDS, said=said)) is None


def test_every_cause_is_a_signature() -> None:
    from model_optimizer.diagnose import signature

    assert set(SHORT) <= {s.id for s in signature.load()}


def test_every_word_is_a_setting_that_its_engine_takes() -> None:
    for name, engine in plugins.load_all("model_optimizer.engines").items():
        words = getattr(engine, "WORDS", {})
        assert set(words.values()) <= getattr(engine, "TAKES", frozenset()), name

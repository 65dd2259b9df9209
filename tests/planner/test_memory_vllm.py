"""vLLM's accounting: which rules hold for which release and GPU, and what it says when it will not start."""

from dataclasses import replace

import pytest

from model_optimizer.core import Fit, FitQuestion, GpuMemory, Lora, MoptError, UsageError, plugins
from model_optimizer.facts import memory
from model_optimizer.facts import vllm as releases
from model_optimizer.planner.memory import card, graphs, vllm
from model_optimizer.system import models

GIB = 2**30


def ask(
    name: str = "Qwen/Qwen3-8B", gpu: str = "h200", version: str = "0.25.1", **choices: object
) -> FitQuestion:
    return FitQuestion(
        model=models.read(name, offline=True),
        gpu=card.named(gpu),
        version=version,
        **choices,  # type: ignore[arg-type]
    )


def fit(*names: str, **choices: object) -> Fit:
    return vllm.fit(ask(*names, **choices))


def setting(found: Fit, name: str) -> str:
    return next(s.value for s in found.settings if s.name == name)


def test_every_number_of_the_answer_hangs_together() -> None:
    found = fit(max_model_len=8192)
    kept = [t for t in found.terms if "on top" not in t.because]
    assert sum(t.bytes for t in kept) == found.budget_bytes
    assert found.weights_bytes == sum(t.bytes for t in found.terms if t.name.startswith("weights"))
    assert found.kv_bytes_per_token == 36 * 4096
    assert found.kv_cache_tokens == pytest.approx(found.kv_cache_bytes / found.kv_bytes_per_token, rel=1e-4)
    assert found.max_concurrency == pytest.approx(found.kv_cache_tokens / 8192, abs=0.01)
    assert all(t.because and t.source for t in found.terms)


def test_what_is_left_out_takes_the_defaults_of_the_release_and_gpu() -> None:
    big, small = fit(), fit("Qwen/Qwen3-0.6B", "l4", "0.11.0")
    assert [setting(big, n) for n in ("max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization")] == [
        "1024", "8192", "0.92",
    ]  # fmt: skip
    assert [setting(small, n) for n in ("max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization")] == [
        "256", "2048", "0.9",
    ]  # fmt: skip
    assert setting(big, "max-model-len") == "40960"


def test_the_texts_are_those_of_the_release() -> None:
    v0 = fit("meta-llama/Llama-3.1-8B-Instruct", "rtx 3090", "0.6.4", max_model_len=29000)
    assert v0.error is not None
    assert "The model's max seq len (29000) is larger than the maximum number of tokens" in v0.error
    old = fit("Qwen/Qwen3-32B", "h100", "0.11.0", max_model_len=32000)
    assert (
        old.error is not None
        and "the models's max seq len (32000), (7.81 GiB KV cache is needed" in old.error
    )
    assert "the estimated maximum model length is" in old.error
    new = fit("Qwen/Qwen3-32B", "h100", max_model_len=32000, gpu_memory_utilization=0.84)
    assert new.error is not None and "the model's max seq len (32000)" in new.error
    assert (old.binding, new.binding, old.fits) == ("kv_cache", "kv_cache", False)


def test_no_room_at_all_and_no_room_on_the_card() -> None:
    none = fit(gpu_memory_utilization=0.1)
    assert (none.fits, none.binding, none.error) == (
        False,
        "weights",
        "No available memory for the cache blocks.",
    )
    assert none.kv_cache_tokens == 0 and none.largest_max_model_len is None
    off = fit("Qwen/Qwen3-32B", "l4")
    assert (off.binding, off.error) == ("weights", "torch.OutOfMemoryError: CUDA out of memory")
    peak = fit(gpu_memory_utilization=0.117, max_num_batched_tokens=65536)
    assert peak.binding == "activation"


def test_less_free_than_asked_for() -> None:
    busy = replace(card.named("h200"), used_bytes=20 * GIB)
    found = vllm.fit(replace(ask(), gpu=busy))
    assert found.binding == "free_memory"
    assert found.error is not None and found.error.startswith("Free memory on device cuda:0 (119.")
    assert vllm.fit(replace(ask(gpu_memory_utilization=0.8), gpu=busy)).fits


def test_others_take_from_the_cache_only_before_0_9_1() -> None:
    busy = replace(card.named("a100 80gb sxm"), used_bytes=2 * GIB)
    old = [
        vllm.fit(replace(ask(version="0.8.5"), gpu=g)).kv_cache_bytes
        for g in (replace(busy, used_bytes=0), busy)
    ]
    new = [
        vllm.fit(replace(ask(version="0.10.2"), gpu=g)).kv_cache_bytes
        for g in (replace(busy, used_bytes=0), busy)
    ]
    assert old[0] - old[1] == 2 * GIB
    assert new[0] == new[1]


def test_the_engine_is_v0_where_v1_does_not_run() -> None:
    t4 = fit("Qwen/Qwen3-0.6B", "t4", "0.8.5", max_model_len=4096)
    assert t4.notes[-2].startswith("engine V0")
    assert setting(t4, "max-num-batched-tokens") == "4096"
    assert any(note.startswith("engine V1") for note in fit("Qwen/Qwen3-0.6B", "l4", "0.8.5").notes)
    asked = fit("Qwen/Qwen3-0.6B", "l4", "0.8.5", env={"VLLM_USE_V1": "0"}, max_model_len=4096)
    assert asked.notes[-2].startswith("engine V0")


def test_v0_starts_at_35k_and_not_at_29k() -> None:
    """Above 32k engine V0 chunks prompts, and its peak falls: seen on an RTX 3090."""
    name, gpu = "meta-llama/Llama-3.1-8B-Instruct", "rtx 3090"
    fits = [fit(name, gpu, "0.6.4", max_model_len=n).fits for n in (20000, 29000, 35000)]
    assert fits == [True, False, True]
    assert fit(name, gpu, "0.6.4", max_model_len=29000).largest_max_model_len > 32768  # type: ignore[operator]


@pytest.mark.parametrize(
    ("version", "model", "choices", "runner"),
    [
        ("0.21.0", "Qwen/Qwen3-8B", {}, "V1"),
        ("0.22.1", "Qwen/Qwen3-8B", {}, "V2"),
        ("0.22.1", "meta-llama/Meta-Llama-3.1-8B", {}, "V1"),
        ("0.23.0", "meta-llama/Meta-Llama-3.1-8B", {}, "V2"),
        ("0.23.0", "Qwen/Qwen3-8B", {"scheme": "fp8"}, "V1"),
        ("0.24.0", "Qwen/Qwen3-8B", {"scheme": "fp8"}, "V2"),
        ("0.24.0", "microsoft/phi-4", {}, "V1"),
        ("0.25.1", "microsoft/phi-4", {}, "V2"),
        ("0.25.1", "Qwen/Qwen3-30B-A3B", {}, "V1"),
        ("0.30.0", "Qwen/Qwen3-30B-A3B", {}, "V2"),
        ("0.25.1", "Qwen/Qwen3-8B", {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}, "V1"),
    ],
)
def test_which_runner_profiles(version: str, model: str, choices: dict[str, object], runner: str) -> None:
    made = dict(choices)
    if "scheme" in made:
        made["scheme"] = plugins.load("model_optimizer.schemes", str(made["scheme"])).SCHEME
    found = fit(model, "h200", version, max_model_len=4096, **made)
    assert f"runner {runner}," in next(n for n in found.notes if n.startswith("engine"))


def test_graphs_are_subtracted_where_the_release_does_it() -> None:
    counted = {
        version: fit(version=version, max_model_len=4096).cuda_graphs_counted
        for version in ("0.19.1", "0.21.0", "0.25.1", "0.30.0")
    }
    assert counted == {"0.19.1": False, "0.21.0": True, "0.25.1": False, "0.30.0": True}
    told = fit(version="0.21.0", env={"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"})
    assert not told.cuda_graphs_counted and told.kv_cache_bytes > fit(version="0.21.0").kv_cache_bytes


def test_eager_needs_no_graphs_and_no_compiler() -> None:
    eager, warm, cold = fit(enforce_eager=True), fit(warm=True), fit()
    assert eager.cuda_graph_bytes == 0
    assert cold.activation_bytes > warm.activation_bytes
    assert any("--warm" in note for note in cold.notes)


def test_models_with_images_embed_outside_of_what_is_compiled() -> None:
    found = fit("Qwen/Qwen3-VL-8B-Instruct", max_model_len=8192)
    assert "activation peak: compiler" not in {t.name for t in found.terms}
    assert any("encoder of images" in note for note in found.notes)


def test_the_encoder_of_images_is_profiled_by_runner_v1() -> None:
    spec = models.read("Qwen/Qwen3-8B", offline=True)
    vision = {"hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14, "spatial_merge_size": 2}
    seeing = replace(
        spec, config={**(spec.config or {}), "vision_config": vision}, vision_parameters=676_550_144
    )
    old = vllm.fit(replace(ask(version="0.11.0", gpu="l4", max_model_len=4096), model=seeing))
    peak = next(t for t in old.terms if t.name.startswith("activation"))
    assert (peak.name, peak.source) == ("activation peak: vision encoder", "assumed")
    unprofiled = vllm.fit(replace(ask(version="0.25.1", max_model_len=4096), model=seeing))
    assert any("does not profile the encoder" in note for note in unprofiled.notes)


def test_capture_sizes() -> None:
    assert graphs.capture_sizes(4, 2048, step=16) == (1, 2, 4, 8)
    assert len(graphs.capture_sizes(1024, 8192, step=16)) == 51
    assert len(graphs.capture_sizes(1024, 8192, step=8)) == 67
    assert graphs.capture_sizes(256, 100, step=16)[-1] == 96


def test_a_sampler_that_sorts_is_said_and_can_be_replaced() -> None:
    sorting = fit("openai/gpt-oss-120b", "h100", "0.10.2", max_model_len=8192)
    assert not sorting.fits
    assert any("VLLM_USE_FLASHINFER_SAMPLER=1" in note for note in sorting.notes)
    env = {"VLLM_USE_FLASHINFER_SAMPLER": "1"}
    other = fit("openai/gpt-oss-120b", "h100", "0.10.2", max_model_len=8192, env=env)
    assert other.fits
    assert not any("FLASHINFER" in note for note in other.notes)


def test_runner_buffers_count_from_0_28_on() -> None:
    old, new = fit(version="0.27.1"), fit(version="0.28.0")
    assert old.kv_cache_bytes - new.kv_cache_bytes == 1024 * (151936 * 4 + 151936 // 8)


def test_two_gpus_share_weights_and_cache() -> None:
    one, two = fit(max_model_len=8192), fit(max_model_len=8192, tensor_parallel=2)
    assert two.gpus == 2
    assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=0.01)
    assert two.kv_bytes_per_token == one.kv_bytes_per_token / 2
    assert two.kv_cache_tokens > 2 * one.kv_cache_tokens


def test_engines_side_by_side() -> None:
    found = fit(data_parallel=4, tensor_parallel=2)
    assert found.gpus == 8
    assert found.kv_cache_tokens == fit(tensor_parallel=2).kv_cache_tokens
    assert any("one of 4 engines" in note for note in found.notes)


def test_a_budget_instead_of_a_share() -> None:
    found = fit("Qwen/Qwen3-0.6B", "h200", max_model_len=4096, vram_bytes=8 * GIB)
    beside = found.cuda_graph_bytes + 1024 * (151936 * 4 + 151936 // 8)
    assert found.budget_bytes + beside < 8 * GIB
    assert found.fits and float(setting(found, "gpu-memory-utilization")) < 0.06
    assert not fit("Qwen/Qwen3-8B", "h200", vram_bytes=8 * GIB).fits


def test_adapters_of_experts_came_with_0_11_1() -> None:
    """Two slots of rank 16: experts have 48 layers x 128 x 3 matrices of 2,048 and 768."""
    slots = Lora(slots=2, rank=16)
    sizes = {
        version: next(
            t.bytes
            for t in fit("Qwen/Qwen3-30B-A3B", "h100", version, lora=slots).terms
            if t.name == "LoRA slots"
        )
        for version in ("0.10.2", "0.25.1")
    }
    assert sizes["0.25.1"] - sizes["0.10.2"] == 2 * 16 * 48 * 128 * 3 * (2048 + 768) * 2


def test_adapters_a_draft_and_host_memory() -> None:
    plain = fit()
    adapters = fit(lora=Lora(slots=4, rank=64))
    drafted = vllm.fit(replace(ask(), draft=models.read("Qwen/Qwen3-0.6B", offline=True)))
    assert "LoRA slots" in {t.name for t in adapters.terms}
    assert adapters.kv_cache_tokens < plain.kv_cache_tokens
    assert drafted.kv_bytes_per_token == plain.kv_bytes_per_token + 28 * 4096
    assert "draft model" in {t.name for t in drafted.terms}
    offload = fit(offload_bytes=10 * GIB)
    assert offload.host_kv_tokens == 10 * GIB // plain.kv_bytes_per_token
    assert offload.kv_cache_tokens == plain.kv_cache_tokens


def test_embedding_models_keep_a_cache_and_encoders_none() -> None:
    found = fit("Qwen/Qwen3-Embedding-0.6B", "4060 laptop", "0.33.0", max_model_len=512)
    assert found.fits and found.kv_cache_tokens > 0
    encoder = fit("sentence-transformers/all-MiniLM-L6-v2", "l4", "0.30.0")
    assert encoder.fits and encoder.kv_cache_tokens == 0 and encoder.binding == "none"


def test_an_unknown_release_is_said_and_every_number_marked() -> None:
    found = fit(version="0.99.0")
    assert not found.version_known
    assert {t.source for t in found.terms} == {"assumed"}
    assert any("0.99.0 is not in the facts" in note for note in found.notes)
    assert fit().version_known


def test_graphs_that_the_card_has_no_room_for() -> None:
    """At 98.5 % of an L4, 0.08 GiB are left beside CUDA's context, and a small model's graphs take more."""
    tight = fit("Qwen/Qwen3-0.6B", "l4", max_model_len=512, gpu_memory_utilization=0.985)
    assert (tight.fits, tight.binding) == (False, "cuda_graphs")
    assert fit("Qwen/Qwen3-0.6B", "l4", max_model_len=512, gpu_memory_utilization=0.9).fits


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"max_model_len": 50_000}, "above the limit of `Qwen/Qwen3-8B`, 40960 tokens"),
        ({"max_num_batched_tokens": 8, "max_num_seqs": 16}, "--max-num-batched-tokens 8 is less than"),
        ({"kv_cache_dtype": "fp5"}, "there is no KV cache format `fp5`"),
        ({"tensor_parallel": 3}, "cannot be divided by --tp 3"),
        ({"pipeline_parallel": 40}, "cannot fill 40 stages"),
    ],
)
def test_contradictions(choices: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        fit(**choices)


def test_what_a_gpu_cannot_run() -> None:
    with pytest.raises(MoptError, match="does not run on GeForce GTX 1070"):
        fit("Qwen/Qwen3-0.6B", "gtx 1070", "0.33.0")
    with pytest.raises(MoptError, match="does not compute in bf16") as caught:
        fit("Qwen/Qwen3-0.6B", "t4", "0.33.0", dtype="bf16")
    assert caught.value.hint == ("pass --dtype fp16",)
    with pytest.raises(MoptError, match="does not run int8"):
        fit(
            "Qwen/Qwen3-0.6B",
            "rtx 5090",
            "0.33.0",
            scheme=plugins.load("model_optimizer.schemes", "int8").SCHEME,
        )
    assert fit("Qwen/Qwen3-0.6B", "t4", "0.33.0").scheme == "fp16"


def test_yarn_stretches_the_limit() -> None:
    spec = models.read("Qwen/Qwen3-8B", offline=True)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    stretched = replace(spec, config={**(spec.config or {}), "rope_scaling": yarn})
    assert vllm.fit(replace(ask(max_model_len=131_072), model=stretched)).max_model_len == 131_072


def test_releases_older_than_all_rules() -> None:
    with pytest.raises(UsageError, match=r"how vLLM 0\.1\.7 accounts"):
        fit(version="0.1.7")


def test_rows_of_rules_stand_in_order() -> None:
    assert memory.vllm("0.9.2").since == "0.9.1"
    assert memory.vllm("0.25.1").since == "0.25.0"
    assert memory.vllm("0.10.1.1").sampler == "flashinfer"


def test_a_gpu_without_a_row_takes_the_nearest_and_says_so() -> None:
    found = fit("Qwen/Qwen3-0.6B", "rtx 5090", "0.33.0")
    term = next(t for t in found.terms if t.name.startswith("libraries"))
    assert term.source == "assumed" and "nearest" in term.because


def test_memory_of_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert card.named("h200").source == "table"
    laptop = card.named("4060 laptop")
    assert laptop.source == "assumed" and 7.7 * GIB < laptop.total_bytes < 8 * GIB
    with pytest.raises(MoptError, match="MI50 runs none of the engines"):
        card.require_cuda(card.named("mi50"), "vllm")
    assert isinstance(laptop, GpuMemory)


@pytest.mark.parametrize(("given", "printed"), [(22 * GIB, 160_192), (21_845_993_470, 148_144)])
def test_a_kv_cache_that_is_given_is_what_vllm_printed(given: int, printed: int) -> None:
    """Starts of vLLM 0.25.1 on an H200 beside other servers (evidence/scheduler-h200, evidence/tune-h200)."""
    found = fit(max_model_len=4096, kv_cache_memory_bytes=given, gpu_memory_utilization=0.25)
    assert found.fits
    assert (found.kv_cache_tokens, found.kv_cache_bytes) == (printed, given)
    assert found.budget_bytes < 0.3 * 141 * 10**9
    assert setting(found, "kv-cache-memory-bytes") == str(given)
    other = fit(max_model_len=4096, kv_cache_memory_bytes=given, gpu_memory_utilization=0.5)
    assert other.kv_cache_tokens == printed


def test_a_kv_cache_that_is_given_must_have_room_and_hold_a_request() -> None:
    much = fit("Qwen/Qwen3-8B", "rtx 4090", max_model_len=4096, kv_cache_memory_bytes=12 * GIB)
    assert not much.fits
    assert "more than there is" in much.because
    little = fit(max_model_len=8192, kv_cache_memory_bytes=GIB)
    assert (little.fits, little.binding) == (False, "kv_cache")
    assert little.largest_max_model_len == 7280


def test_the_share_must_be_free_though_the_kv_cache_is_given() -> None:
    question = ask(max_model_len=4096, kv_cache_memory_bytes=22 * GIB)
    taken = replace(question, gpu=replace(question.gpu, used_bytes=60 * GIB))
    assert vllm.fit(taken).binding == "free_memory"
    assert vllm.fit(replace(taken, gpu_memory_utilization=0.25)).fits


def test_old_releases_take_no_size_of_the_kv_cache() -> None:
    with pytest.raises(UsageError, match="does not take `--kv-cache-memory-bytes`") as fitted:
        fit(version="0.10.1", max_model_len=4096, kv_cache_memory_bytes=GIB)
    with pytest.raises(UsageError) as taken:
        releases.take("0.10.1", "--kv-cache-memory-bytes")
    assert (fitted.value.message, fitted.value.cause) == (taken.value.message, taken.value.cause)
    assert fitted.value.hint == ("give --gpu-memory-utilization or --vram",)

"""Cases that must come out right, with the real arithmetic of memory and time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import Plan
from model_optimizer.core.question import SpeculationAsked
from model_optimizer.core.units import show_ms
from model_optimizer.facts.gpus import DenseTflops
from model_optimizer.flow import plan as asking
from model_optimizer.planner.decide import decide
from model_optimizer.planner.memory import encoder

from .plans import functions, page, plan, read, reasons, request


def test_a_small_model_on_a_laptop_is_served_as_it_is() -> None:
    found = plan("Qwen/Qwen3-0.6B", "rtx 4060 laptop", qps=5, p=512, o=128, ttft_ms=200)
    assert found.feasible
    assert (found.engine, found.scheme, found.replicas, found.gpus) == ("vllm", "bf16", 1, 1)
    assert found.estimate.ttft_ms.p99 is not None and found.estimate.ttft_ms.p99 <= 200
    assert not any("eager" in word for word in found.command), "memory does not force it"
    assert "left on" in page(found, "CUDA graphs")


def test_eight_billion_on_eight_gigabytes_needs_four_bits() -> None:
    found = plan("Qwen/Qwen3-8B", "rtx 4060 laptop", concurrency=1, p=512, o=128)
    assert found.feasible
    assert found.scheme in ("awq_int4", "int4_rtn")
    for scheme in ("bf16", "fp8", "int8_weight"):
        assert "fit" in reasons(found, "vllm", scheme) or "weights" in reasons(found, "vllm", scheme)
    if found.setting("enforce-eager"):
        why = next(s.because for s in found.settings if s.name == "enforce-eager")
        assert "memory" in why and "ms" in why, "eager mode is shown with its price"


def test_embeddings_on_the_laptop_keep_200_ms_at_200_requests_of_two_texts() -> None:
    found = plan("Qwen/Qwen3-Embedding-0.6B", "rtx 4060 laptop", qps=200, p=32, texts=2, e2e_ms=200)
    assert found.feasible and found.gpus == 1
    assert found.estimate.e2e_ms.p99 is not None and found.estimate.e2e_ms.p99 < 200
    assert found.estimate.tpot_ms.p99 is None and found.estimate.output_tokens_per_s is None
    assert found.setting("runner") == "pooling"
    assert ("--runner", "pooling") in zip(found.command, found.command[1:], strict=False)
    assert not found.estimate.saturated
    crowded = plan("Qwen/Qwen3-Embedding-0.6B", "rtx 4060 laptop", qps=2000, p=32, texts=2, e2e_ms=200)
    assert not crowded.feasible and crowded.binding == "gpus"
    assert any(near.axis == "qps" for near in crowded.nearest)


def test_deepseek_v2_does_not_fit_one_small_card_whatever_the_format() -> None:
    for gpu, axis in (("rtx 4060 laptop", "gpu"), ("l20", "gpus")):
        found = plan("deepseek-ai/DeepSeek-V2", gpu)
        assert not found.feasible
        assert found.binding == "memory"
        assert found.short_by is not None and found.short_by > 60e9 and found.short_by_unit == "bytes a GPU"
        assert axis in {near.axis for near in found.nearest}
        assert all(near.plan.feasible for near in found.nearest)
    laptop = plan("deepseek-ai/DeepSeek-V2", "rtx 4060 laptop")
    assert "gpus" not in {near.axis for near in laptop.nearest}, "a laptop has one GPU"
    assert "host memory" in reasons(laptop, "llama_cpp")


@pytest.mark.parametrize(("scheme", "count"), [("awq_int4", 4), ("fp8", 8)])
def test_deepseek_v2_on_l20s_prices_the_all_reduce_over_pcie(scheme: str, count: int) -> None:
    found = plan("deepseek-ai/DeepSeek-V2", "l20", gpus=count, scheme=scheme, tensor_parallel=count)
    assert found.feasible
    assert (found.tensor_parallel, found.gpus) == (count, count)
    told = page(found, "parallelism")
    assert "no NVLink" in told and "communication" in told
    cost = float(told.split(" of ")[0].split("|")[-1])
    assert cost > 1, "an all-reduce over PCIe costs milliseconds a step"


def test_deepseek_v2_lite_on_one_l20() -> None:
    found = plan("deepseek-ai/DeepSeek-V2-Lite", "l20")
    assert found.feasible and found.gpus == 1 and found.scheme == "bf16"


@pytest.mark.parametrize("gpu", ["a10", "a100 sxm4 80gb"])
def test_qwen2_7b_in_16_bits(gpu: str) -> None:
    found = plan("Qwen/Qwen2-7B", gpu, qps=2)
    assert found.feasible and (found.scheme, found.gpus) == ("bf16", 1)
    if gpu == "a10":
        slow = plan("Qwen/Qwen2-7B", gpu, qps=2, tpot_ms=5)
        assert not slow.feasible and slow.binding == "tpot_ms"
        assert slow.short_by is not None and slow.short_by_unit == "ms"
        assert "latency" in {near.axis for near in slow.nearest}


def test_the_5070_laptop_runs_current_releases_and_is_faster_than_its_elder() -> None:
    found = plan("Qwen/Qwen3-0.6B", "rtx 5070 laptop", concurrency=1)
    assert found.feasible and found.engine == "vllm"
    assert any("12.0" in link.says and link.holds for link in found.links)
    older = plan("Qwen/Qwen3-0.6B", "rtx 4060 laptop", concurrency=1)
    assert found.estimate.tpot_ms.mean is not None and older.estimate.tpot_ms.mean is not None
    assert found.estimate.tpot_ms.mean < older.estimate.tpot_ms.mean, "384 beside 256 GB/s"


@pytest.mark.parametrize("length", [16384, 32768])
def test_qwen3_32b_on_one_h100_at_long_contexts(length: int) -> None:
    found = plan("Qwen/Qwen3-32B", "h100", max_model_len=length, concurrency=2, p=length - 1024, o=512)
    assert found.feasible and found.gpus == 1
    assert found.setting("max-model-len") == str(length)
    many = plan(
        "Qwen/Qwen3-32B", "h100", max_model_len=length, concurrency=2, scheme="bf16", kv_cache_dtype="auto"
    )
    assert many.feasible or any(near.axis == "bits" for near in many.nearest)


@pytest.mark.parametrize("tensor", [1, 2])
def test_llama_70b_in_fp8_on_h100(tensor: int) -> None:
    found = plan(
        "meta-llama/Llama-3.3-70B-Instruct", "h100", gpus=tensor, scheme="fp8", tensor_parallel=tensor
    )
    assert found.feasible and found.tensor_parallel == tensor
    assert found.estimate.tpot_ms.mean is not None


def test_two_gpus_answer_faster_than_one() -> None:
    one, two = (
        plan(
            "meta-llama/Llama-3.3-70B-Instruct",
            "h100",
            gpus=n,
            scheme="fp8",
            tensor_parallel=n,
            concurrency=4,
        )
        for n in (1, 2)
    )
    assert one.estimate.tpot_ms.mean is not None and two.estimate.tpot_ms.mean is not None
    assert two.estimate.tpot_ms.mean < one.estimate.tpot_ms.mean


def test_gpt_oss_120b_on_one_h100_in_its_own_format() -> None:
    found = plan("openai/gpt-oss-120b", "h100")
    assert found.feasible and (found.scheme, found.gpus, found.engine) == ("mxfp4", 1, "vllm")
    assert found.setting("reasoning-parser") == "openai_gptoss"


@pytest.mark.parametrize(
    ("model", "scheme", "gpus"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", "bf16", 1),
        ("Qwen/Qwen3-30B-A3B", "bf16", 1),
        ("deepseek-ai/DeepSeek-V3", "fp8_block", 8),
    ],
)
def test_mixtures_of_experts_on_eight_h200(model: str, scheme: str, gpus: int) -> None:
    found = plan(model, "h200", gpus=8)
    assert found.feasible and (found.scheme, found.gpus) == (scheme, gpus)


def test_a_vision_language_model() -> None:
    found = plan("Qwen/Qwen3-VL-8B-Instruct", "h200")
    assert found.feasible and found.engine == "vllm"


def test_int8_with_int8_activations_is_refused_on_blackwell() -> None:
    found = plan("Qwen/Qwen3-8B", "rtx 5090", engine="vllm", version="0.33.0", scheme="int8")
    assert not found.feasible and found.binding == "number format"
    assert "12.0" in reasons(found, "vllm", "int8")
    assert "bits" in {near.axis for near in found.nearest}
    weights = plan("Qwen/Qwen3-8B", "rtx 5090", engine="vllm", version="0.33.0", scheme="int8_weight")
    assert weights.feasible, "weights alone in 8 bits are another matter"


def test_tensorrt_for_rtx_is_judged_apart() -> None:
    asked = {"qps": 20, "p": 64, "e2e_ms": 200, "build_minutes": 10}
    model = "sentence-transformers/all-MiniLM-L6-v2"
    found = plan(model, "rtx 5090", engine="tensorrt_rtx", scheme="int8", **asked)
    assert found.feasible, "vLLM refuses INT8 there"
    for scheme in ("int8_weight", "nvfp4"):
        none = plan(model, "rtx 5090", engine="tensorrt_rtx", scheme=scheme, **asked)
        assert (none.feasible, none.binding) == (False, "number format")
        assert "`mopt convert` makes no network" in reasons(none, "tensorrt_rtx", scheme)
    server = plan(model, "h100", near=False, engine="tensorrt_rtx", **asked)
    assert not server.feasible and server.binding == "gpu", "it does not build for 9.0"
    best = plan(model, "rtx 5090", **asked)
    assert best.engine == "tensorrt_rtx" and best.branch[-1].startswith("tensorrt_rtx")
    without = plan(model, "rtx 5090", **{**asked, "build_minutes": 0})
    assert without.engine == "vllm"


@pytest.mark.parametrize("engine", ["tensorrt", "tensorrt_rtx"])
@pytest.mark.parametrize("gpu", ["rtx 4060", "rtx 5090"])
def test_int8_in_a_network_is_not_bound_by_what_vllm_refuses(engine: str, gpu: str) -> None:
    found = plan("sentence-transformers/all-MiniLM-L6-v2", gpu, engine=engine, scheme="int8", qps=20, p=64)
    assert found.feasible and found.scheme == "int8"
    step = found.prepare[0]
    assert step[step.index("--scheme") + 1] == "int8", "the network decides the precision of its engine"


def test_an_engine_that_takes_no_model_in_a_format_says_so() -> None:
    found = plan("Qwen/Qwen3-8B", "h100", engine="llama_cpp", scheme="awq_int4")
    assert not found.feasible and found.binding == "number format"
    assert "llama.cpp takes no model in `awq_int4`" in found.notes


def test_nvfp4_on_ada_is_weight_only() -> None:
    found = plan("Qwen/Qwen3-8B", "rtx 4090", scheme="nvfp4")
    assert found.feasible
    assert "weight-only" in page(found, "number format")
    native = plan("Qwen/Qwen3-8B", "rtx 5090", scheme="nvfp4")
    assert "native" in page(native, "number format")


def test_bf16_on_a_t4_is_refused_and_fp16_offered() -> None:
    found = plan("Qwen/Qwen3-0.6B", "t4", dtype="bf16")
    assert not found.feasible and found.binding == "number format"
    assert "FP16 runs there" in found.notes[0]
    near = next(n for n in found.nearest if n.axis == "dtype")
    assert near.plan.scheme == "fp16" and near.plan.feasible
    left = plan("Qwen/Qwen3-0.6B", "t4")
    assert left.scheme == "fp16"
    assert "7.5" in next(s.because for s in left.settings if s.name == "dtype")


@pytest.mark.parametrize("gpu", ["gtx 1070", "mi50"])
def test_old_and_foreign_cards_get_what_runs_there(gpu: str) -> None:
    found = plan("Qwen/Qwen3-0.6B", gpu)
    assert found.feasible and found.engine == "llama_cpp"
    assert "gpu" in reasons(found, "vllm") and "gpu" in reasons(found, "tensorrt_llm")
    encoder = plan("sentence-transformers/all-MiniLM-L6-v2", gpu)
    assert "gpu" in reasons(encoder, "tensorrt") and "gpu" in reasons(encoder, "tensorrt_rtx")
    asked = plan("Qwen/Qwen3-0.6B", gpu, engine="vllm")
    assert not asked.feasible and asked.binding == "gpu"
    assert next(n for n in asked.nearest if n.axis == "engine").plan.engine == "llama_cpp"


def test_fp8_on_a_4060_by_channel_and_in_blocks() -> None:
    found = plan("Qwen/Qwen3-0.6B", "rtx 4060", scheme="fp8")
    assert found.feasible and "native" in page(found, "number format")
    assert found.setting("quantization") == "fp8"
    blocks = plan("Qwen/Qwen3-0.6B", "rtx 4060", scheme="fp8_block")
    assert blocks.feasible and "weight-only" in page(blocks, "number format")


VIT = """{"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 768,
"num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224,
"patch_size": 16, "num_channels": 3}"""


def test_a_network_for_images_is_built_for_images(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(VIT)
    found = plan(str(path), "l4", qps=100.0, e2e_ms=50.0)
    assert found.engine == "tensorrt"
    assert found.workload.prompt_tokens.mean == 197, "16 x 16 pixels a place, and one for the class"
    assert "prompt tokens" not in " ".join(found.notes)
    assert "--minShapes=pixel_values:1x3x224x224" in found.command


def test_a_network_for_texts_gets_a_shape_for_each_input() -> None:
    model = "sentence-transformers/all-MiniLM-L6-v2"
    found = plan(model, "rtx 4060 laptop", qps=100.0, e2e_ms=100.0, build_minutes=30.0)
    assert found.engine == "tensorrt_rtx"
    shapes = [word for word in found.command if "Shapes=" in word]
    assert [word.split("=")[0] for word in shapes] == ["--minShapes", "--optShapes", "--maxShapes"]
    assert all("token_type_ids:" in word for word in shapes)


def unknown_speed(**asked: Any) -> Plan:
    """An MI50 of which nobody wrote down how fast it computes."""
    question = asking.question_of(request("Qwen/Qwen3-8B", "mi50", qps=5.0, **asked))
    bare = replace(question.gpu, dense_tflops=DenseTflops(), cuda_cores=None)
    return decide(replace(question, gpu=bare), functions())


def test_no_limit_is_promised_where_speed_is_not_known() -> None:
    found = unknown_speed(ttft_ms=200.0)
    assert (found.feasible, found.binding) == (False, "speed")
    assert "no latency can be promised" in reasons(found, "llama_cpp")
    latency = next(near for near in found.nearest if near.axis == "latency")
    assert "whose speed is not known" in latency.change
    assert unknown_speed().engine == "llama_cpp"


def test_an_mi50_goes_by_what_was_measured_on_it() -> None:
    found = plan("Qwen/Qwen3-4B", "mi50", concurrency=1, scheme="int4_rtn")
    assert found.engine == "llama_cpp" and found.estimate.tpot_ms.mean is not None
    assert found.estimate.tpot_ms.mean == pytest.approx(1e3 / 128, rel=0.2), "128 tokens a second"


def test_a_gtx_1070_goes_by_the_kernels_of_llama_cpp() -> None:
    found = plan("Qwen/Qwen3-0.6B", "gtx 1070", qps=0.2)
    assert found.engine == "llama_cpp" and "llama.cpp" in found.estimate.provenance
    assert found.estimate.tpot_ms.mean is not None and 3 < found.estimate.tpot_ms.mean < 20
    many = plan("Qwen/Qwen3-0.6B", "gtx 1070", qps=500.0)
    assert (many.feasible, many.binding) == (False, "gpus")


def test_layers_on_the_cpu_are_predicted_and_what_was_assumed_of_it_is_said() -> None:
    found = plan("Qwen/Qwen3-32B", "rtx 4060 laptop", concurrency=1)
    assert found.engine == "llama_cpp" and "assumed 51 GB/s" in found.estimate.provenance
    assert found.estimate.tpot_ms.mean is not None and found.estimate.tpot_ms.mean > 100
    assert any(note.startswith("host memory: 16 GiB are assumed") for note in found.notes)
    assert (found.setting("parallel"), found.setting("ctx-size")) == ("1", "2048"), "one client, one slot"


def test_many_of_another_card_are_offered_when_one_is_too_few() -> None:
    limits = {"ttft_ms": 800.0, "tpot_ms": 25.0}
    found = plan("meta-llama/Llama-3.3-70B-Instruct", "h100", qps=5.0, p=4000, o=500, **limits)
    other = next(near for near in found.nearest if near.axis == "gpu")
    assert other.plan.gpus > 1
    assert other.change.startswith(f"{other.plan.gpus} x ")


def test_what_saves_memory_and_no_work_is_said_on_the_screen() -> None:
    ada = plan("Qwen/Qwen3-8B", "l4", scheme="nvfp4")
    assert any("nvfp4 is weight-only on L4" in note for note in ada.notes)
    blocks = plan("Qwen/Qwen3-0.6B", "rtx 4060", scheme="fp8_block")
    assert any("fp8_block is weight-only on GeForce RTX 4060" in note for note in blocks.notes)
    channels = plan("Qwen/Qwen3-0.6B", "rtx 4060", scheme="fp8")
    assert not any("weight-only" in note for note in channels.notes)


def test_one_screen_has_one_tail_of_the_time_per_token() -> None:
    """The reason of the tokens a step names the P99 that is expected, not another way to come to one."""
    found = plan("Qwen/Qwen3-8B", "h200", qps=10.0, p=2000, o=300, tpot_ms=40)
    because = next(s.because for s in found.settings if s.name == "max-num-batched-tokens")
    assert found.estimate.tpot_ms.p99 is not None
    assert f"TPOT P99 is {show_ms(found.estimate.tpot_ms.p99)}" in because
    assert "by the formula" in page(found, "tokens a step")


def test_a_near_plan_of_a_dtype_says_what_is_computed_and_what_is_stored() -> None:
    found = plan("Qwen/Qwen3-8B", "t4", dtype="bf16")
    near = next(one for one in found.nearest if one.axis == "dtype")
    assert near.change.startswith("computed as FP16, which needs weights in")


@pytest.mark.parametrize("owner", ["meta-llama", "nvidia"])
def test_a_checkpoint_in_fp8_is_counted_in_eight_bits(owner: str) -> None:
    found = plan(f"{owner}/Llama-3.1-70B-Instruct-FP8", "h100", gpus=2)
    assert (found.feasible, found.scheme, found.gpus) == (True, "fp8_static", 1)
    weights = sum(term.bytes for term in found.estimate.memory if term.name.startswith("weights"))
    assert weights < 69 * 2**30, "a byte a weight, but for embedding and head"


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_between_equals_the_one_that_needs_no_file_of_its_own_is_simpler(clients: int) -> None:
    found = plan("mistralai/Mixtral-8x7B-v0.1", "h100", concurrency=clients)
    assert (found.scheme, found.prepare) == ("fp8", ())
    assert "has to be made first" in reasons(found, "vllm", "int8_weight")
    assert not any(row.scheme == "int8_weight" for row in found.crossover), "3 % more clients are nothing"
    asked = plan("mistralai/Mixtral-8x7B-v0.1", "h100", concurrency=clients, scheme="int8_weight")
    fast, slow = found.estimate.tpot_ms.mean, asked.estimate.tpot_ms.mean
    assert fast is not None and slow is not None and fast < 1.02 * slow


def test_what_is_short_of_host_memory_is_not_said_of_the_gpu() -> None:
    found = plan("meta-llama/Llama-3.3-70B-Instruct", "rtx 4090")
    assert (found.binding, found.short_by_unit) == ("memory", "bytes of host memory")
    promised = plan("meta-llama/Llama-3.3-70B-Instruct", "rtx 4090", ttft_ms=300.0)
    assert (promised.binding, promised.short_by_unit) == ("memory", "bytes a GPU")
    assert "no latency can be promised" in reasons(promised, "llama_cpp")


def test_fewer_layers_on_the_cpu_come_before_more_bits() -> None:
    found = plan("Qwen/Qwen3-VL-8B-Instruct", "rtx 4060 laptop", engine="llama_cpp")
    assert (found.scheme, found.setting("n-gpu-layers")) == ("int4_rtn", "36")
    assert "leaves more layers to the CPU" in reasons(found, "llama_cpp", "bf16")


def test_the_last_chunk_of_a_prompt_costs_what_is_in_it() -> None:
    """2,040 tokens beside 14 sequences take one step of 2,034 and one of six, not two whole ones."""
    load = {"qps": 1.0, "p": 2040, "images": 0}
    found = plan("Qwen/Qwen3-VL-8B-Instruct", "l4", scheme="fp8", **load)
    said = page(found, "requests at once")
    seconds = float(said.split("/s x ")[1].split(" s")[0])
    assert found.estimate.e2e_ms.mean is not None
    assert seconds == pytest.approx(found.estimate.e2e_ms.mean / 1e3, rel=0.3)


def test_slots_that_the_cache_has_no_seats_for_are_said_so() -> None:
    load = {"qps": 1.0, "p": 2040, "images": 0}
    found = plan("Qwen/Qwen3-VL-8B-Instruct", "l4", scheme="fp8", **load)
    assert "the KV cache has no seats for more" in page(found, "requests at once")


def test_the_arithmetic_of_slots_can_be_followed() -> None:
    found = plan("Qwen/Qwen3-8B", "h100", qps=5.0, p=1000, o=300)
    told = page(found, "requests at once")
    assert "1.5 x (rate x time in the system (Little) + 3 roots of it (Poisson) + 1)" in told
    mean = float(told.split(" = ")[1].split(" in flight")[0])
    slots = -(-1.5 * (mean + 3 * mean**0.5 + 1) // 8) * 8
    assert found.setting("max-num-seqs") == f"{slots:.0f}"


def test_the_context_of_texts_has_a_floor_of_its_own() -> None:
    told = page(plan("Qwen/Qwen3-Embedding-0.6B", "l4", qps=10.0, p=32), "context length")
    assert "round up(text P99.9, 256), at least 512" in told and "prompts up to 32: 512 tokens" in told


VISION = "Qwen/Qwen3-VL-8B-Instruct"


def test_the_encoder_of_images_takes_time_of_its_own() -> None:
    """Prompts of the same length, once of text alone: what differs is the encoder."""
    load = {"concurrency": 1, "o": 128, "scheme": "fp8"}
    images = plan(VISION, "l4", p=200, images=2, image_size=(1280, 720), **load)
    text = plan(VISION, "l4", p=2040, images=0, **load)
    assert images.workload.prompt_tokens.mean == text.workload.prompt_tokens.mean == 2040
    assert images.estimate.ttft_ms.mean is not None and text.estimate.ttft_ms.mean is not None
    more = images.estimate.ttft_ms.mean - text.estimate.ttft_ms.mean
    # 2 x 5 T operations at the 121 T a second of an L4, of which it reaches a part.
    assert 2 * 5e12 / 121e12 * 1e3 < more < 3 * 2 * 5e12 / 121e12 * 1e3
    assert images.estimate.tpot_ms.mean == pytest.approx(text.estimate.tpot_ms.mean)
    assert "image encoder by its operations" in images.estimate.provenance
    assert any("T operations an image" in note for note in images.notes)


def test_the_operations_of_an_encoder() -> None:
    """27 layers of 1152 x (3456 + 1152 + 2 x 4304), patches of 3 x 2 x 16 x 16, mergers for a quarter of them."""
    spec = read(VISION).spec
    patches, tokens = 40 * 23 * 4, 40 * 23
    layers = 27 * 1152 * (3456 + 1152 + 2 * 4304)
    mergers = 4 * 4608 * (4608 + 4096)
    wanted = 2 * (patches * (layers + 1152 * 1536) + tokens * mergers) + 4 * patches**2 * 1152 * 27
    assert encoder.operations(spec, 1280, 720) == pytest.approx(wanted, rel=1e-3)
    assert encoder.operations(read("Qwen/Qwen3-8B").spec, 1280, 720) is None


def test_the_encoder_is_divided_over_the_gpus_of_a_layer() -> None:
    load = {"concurrency": 1, "o": 128, "p": 200, "images": 4, "scheme": "bf16"}
    alone = plan(VISION, "h100", tensor_parallel=1, **load)
    shared = plan(VISION, "h100", gpus=2, tensor_parallel=2, **load)
    assert alone.estimate.ttft_ms.mean is not None and shared.estimate.ttft_ms.mean is not None
    assert shared.estimate.ttft_ms.mean < 0.75 * alone.estimate.ttft_ms.mean


@pytest.mark.parametrize("method", ["ngram"])
def test_drafts_are_priced_once_beside_images(method: str) -> None:
    asked = SpeculationAsked(method=method, tokens=4, acceptance=0.6)
    found = plan(VISION, "h100", concurrency=1, p=200, images=1, speculation=asked)
    assert found.feasible and "at 60%" in page(found, "speculative decoding")


@pytest.mark.parametrize("load", [{"concurrency": 1000}, {"qps": float("inf"), "requests": 1000}])
def test_many_who_may_wait_cost_no_quality_and_no_speed(load: dict[str, Any]) -> None:
    """Without limits those that find no room in the cache wait: it stays in 16 bits, and vLLM serves them."""
    found = plan("Qwen/Qwen3-8B", "h100", **load)
    assert (found.engine, found.scheme, found.setting("kv-cache-dtype")) == ("vllm", "bf16", None)
    assert found.estimate.requests_per_s is not None and found.estimate.requests_per_s > 40
    assert "= 1,000 in flight" in page(found, "requests at once")

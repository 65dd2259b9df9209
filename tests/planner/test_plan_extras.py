"""What a plan adds to a server that would start without it, and what it says when it adds nothing."""

import json

import pytest

from model_optimizer.core import Host, HostError, UsageError
from model_optimizer.core.question import SpeculationAsked

from .plans import page, plan, reasons

GIB = 2**30


def test_graphs_host_memory_and_drafts_are_weighed_on_a_page_each() -> None:
    found = plan("Qwen/Qwen3-8B", "h100", qps=3.0, p=512, o=128)
    assert found.setting("max-cudagraph-capture-size") == str(2 * int(found.setting("max-num-seqs") or 0))
    assert "--max-cudagraph-capture-size" not in found.command, "a default is shown and not passed"
    assert "every 8th" in page(found, "CUDA graphs")
    assert "nothing is known to repeat" in page(found, "KV cache in host memory")
    assert "pays from an acceptance of" in page(found, "speculative decoding")
    assert "reasoning parser qwen3" in page(found, "model recipe")


def test_host_memory_for_the_cache_is_passed_in_gibibytes() -> None:
    found = plan("Qwen/Qwen3-8B", "h100", qps=3.0, p=512, o=128, kv_offload_bytes=32 * GIB)
    assert found.command[found.command.index("--kv-offloading-size") + 1] == "32"
    assert "32 GiB of host memory" in page(found, "KV cache in host memory")


def test_drafts_as_asked_change_the_command_and_the_times() -> None:
    asked = SpeculationAsked(method="ngram", tokens=4, acceptance=0.8)
    plain = plan("Qwen/Qwen3-8B", "h100", qps=3.0, p=512, o=128)
    found = plan("Qwen/Qwen3-8B", "h100", qps=3.0, p=512, o=128, speculation=asked)
    told = json.loads(found.command[found.command.index("--speculative-config") + 1])
    assert told == {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    assert (found.estimate.tpot_ms.mean or 9e9) < 0.7 * (plain.estimate.tpot_ms.mean or 0)
    assert "times plain decoding" in page(found, "speculative decoding")


def test_a_release_that_cannot_draft_so_is_refused() -> None:
    asked = SpeculationAsked(method="mtp", tokens=1)
    with pytest.raises(UsageError, match="does not draft with `mtp`"):
        plan("deepseek-ai/DeepSeek-V3", "h200", gpus=8, speculation=asked, engine="vllm", version="0.10.2")


def test_other_engines_get_openly_what_vllm_has_as_its_default() -> None:
    found = plan("Qwen/Qwen3-8B", "h100", qps=3.0, p=512, o=128, engine="sglang")
    assert "--chunked-prefill-size" in found.command
    assert "--mem-fraction-static" not in found.command, "its own rule leaves room for activations"
    assert found.setting("reasoning-parser") == "qwen3"
    shared = plan("Qwen/Qwen3-8B", "rtx 4090", qps=3.0, p=512, o=128, engine="sglang")
    share = float(shared.setting("gpu-memory-utilization") or 0)
    assert 0.8 < share < 0.9
    assert next(s for s in shared.settings if s.name == "gpu-memory-utilization").source == "assumed"


@pytest.mark.parametrize(
    ("model", "asked", "said"),
    [
        ("Qwen/Qwen3-8B", SpeculationAsked(method="mtp", tokens=1), "no layers that predict further tokens"),
        ("Qwen/Qwen3-Embedding-0.6B", SpeculationAsked(method="ngram", tokens=2), "generates nothing"),
    ],
)
def test_what_cannot_be_drafted_is_refused(model: str, asked: SpeculationAsked, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(model, "h100", speculation=asked)


def test_layers_that_predict_ahead_take_memory() -> None:
    asked = SpeculationAsked(method="mtp", tokens=1, acceptance=0.8)
    found = plan("deepseek-ai/DeepSeek-V3", "h200", gpus=8, concurrency=8, p=512, o=128, speculation=asked)
    term = next(t for t in found.estimate.memory if t.name == "layers that predict ahead")
    assert 1.2 * GIB < term.bytes < 1.6 * GIB, "11.5 G parameters in 8 bits over eight GPUs"


def test_measurements_are_taken_and_nothing_else_when_they_are_required() -> None:
    own = plan("Qwen/Qwen3-8B", "h200", qps=3.0, engine="vllm", version="0.25.1", step_model="measured")
    assert own.feasible
    assert own.estimate.provenance.startswith("measured")
    none = plan("Qwen/Qwen3-8B", "h200", qps=3.0, step_model="measured", near=False)
    assert (none.feasible, none.binding) == (False, "step model")
    assert "nothing was measured" in reasons(none, "vllm", "bf16")


def test_tables_that_are_not_here_are_said_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_optimizer.system.step_tables.installed", lambda: None)
    monkeypatch.setattr(
        "model_optimizer.system.step_tables.folder", lambda: __import__("pathlib").Path("/none")
    )
    with pytest.raises(HostError, match="not installed"):
        plan("Qwen/Qwen3-8B", "h200", qps=3.0, step_model="tables")


def test_clients_of_an_interface_need_a_server_that_has_it() -> None:
    model = "Qwen/Qwen3-Embedding-0.6B"
    found = plan(model, "rtx 4060 laptop", qps=2.0, apis=frozenset({"openai"}), build_minutes=30.0)
    assert "has no openai interface" in reasons(found, "tensorrt_rtx")
    none = plan(model, "rtx 4060 laptop", engine="tensorrt", apis=frozenset({"openai"}))
    assert (none.feasible, none.binding) == (False, "api")


@pytest.mark.parametrize(
    ("model", "parser"),
    [("deepseek-ai/DeepSeek-V3", None), ("deepseek-ai/DeepSeek-R1", "deepseek_r1")],
)
def test_only_models_that_think_get_a_reasoning_parser(model: str, parser: str | None) -> None:
    found = plan(model, "h200", gpus=8, concurrency=4, p=512, o=128)
    assert found.setting("reasoning-parser") == parser


def test_host_memory_is_asked_of_vllm_and_of_a_host_that_has_it() -> None:
    with pytest.raises(UsageError, match="planned for vllm, not for sglang"):
        plan("Qwen/Qwen3-8B", "h100", engine="sglang", kv_offload_bytes=GIB)
    with pytest.raises(UsageError, match="more than the memory of the host"):
        plan("Qwen/Qwen3-8B", "h100", host=Host(memory_available_bytes=16 * GIB), kv_offload_bytes=32 * GIB)

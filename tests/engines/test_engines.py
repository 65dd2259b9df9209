"""Engines without engines: what they say of memory, settings and starts, by arithmetic."""

import dataclasses
from typing import ClassVar

import pytest

from model_optimizer.core import (
    Cpu,
    Host,
    Lengths,
    ModelSpec,
    Plan,
    Setting,
    Slo,
    UsageError,
    Workload,
    plugins,
)
from model_optimizer.engines import _arithmetic as arithmetic
from model_optimizer.engines import onnxruntime, pytorch, vllm_cpu
from model_optimizer.schemes import fp32, int4_rtn, int8_weight
from model_optimizer.testing.engine_contract import engine_contract, sample_model, workload

ENGINES = plugins.load_all("model_optimizer.engines")
SCHEMES = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
HOST = Host(cpu=Cpu(cores=2))


def term(terms: tuple[object, ...], name: str) -> int:
    return next(t.bytes for t in terms if t.name == name)  # type: ignore[attr-defined]


def plan_for(
    engine: object, model: ModelSpec, work: Workload, *, scheme: str, format: str, name: str
) -> Plan:
    return Plan(
        model="Qwen/Qwen3-0.6B",
        checkpoint="/models/x",
        workload=work,
        slo=Slo(),
        engine=name,
        environment=engine.ENVIRONMENT,  # type: ignore[attr-defined]
        scheme=scheme,
        format=format,
        settings=engine.settings(model, SCHEMES[scheme], work, HOST),  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_keeps_the_contract(name: str) -> None:
    engine_contract(name, ENGINES[name], SCHEMES)


def test_a_broken_engine_breaks_the_contract() -> None:
    class Silent:
        TITLE, ENVIRONMENT = "silent", "onnx"
        READS: ClassVar = {"onnx": frozenset({"fp32"})}
        TASKS, DEVICES = frozenset({"embed"}), frozenset({"cpu"})
        memory = staticmethod(lambda *_: ())

    with pytest.raises(AssertionError, match=r"memory\(\) is a tuple of Terms"):
        engine_contract("silent", Silent)


@pytest.mark.parametrize("name", ENGINES)
def test_what_an_engine_decides_is_what_it_takes(name: str) -> None:
    """A setting that `launch` does not read would change nothing; `mopt serve --set` refuses such ones."""
    engine = ENGINES[name]
    takes = getattr(engine, "TAKES", None)
    for task in engine.TASKS:
        scheme = SCHEMES[sorted(next(iter(engine.READS.values())))[0]]
        decided = engine.settings(sample_model(task), scheme, workload(task, 8), HOST)
        assert {setting.name for setting in decided} <= takes


@pytest.mark.parametrize("name", ENGINES)
def test_what_an_engine_takes_reaches_its_server(name: str) -> None:
    """Each setting by itself changes what is started."""
    engine = ENGINES[name]
    served = getattr(engine, "SERVES", engine.READS)
    form = {"onnxruntime": "onnx_genai"}.get(name, next(iter(served)))
    scheme = sorted(served[form])[0]
    task = "generate" if "generate" in engine.TASKS else "embed"
    plain = plan_for(engine, sample_model(task), workload(task, 4), scheme=scheme, format=form, name=name)
    plain = dataclasses.replace(plain, settings=(), engine_version=None)
    before = engine.launch(plain, 8123)
    for word in sorted(engine.TAKES - {"task", "enable-reasoning"}):  # of releases long ago
        value = {"host": "0.0.0.0", "kv-cache-dtype": "fp8"}.get(word, "1")
        setting = Setting(name=word, value=value, because="asked", source="user")
        try:
            after = engine.launch(dataclasses.replace(plain, settings=(setting,)), 8123)
        except UsageError:
            continue  # this release does not have it, and says so
        assert after != before, word


def test_only_pytorch_is_the_baseline() -> None:
    assert [name for name, engine in ENGINES.items() if getattr(engine, "BASELINE", False)] == ["pytorch"]


# -- memory


def test_a_tied_head_is_held_twice_in_32_bits_and_once_in_8() -> None:
    model, work = sample_model("generate"), workload("generate", 1)
    whole = term(onnxruntime.memory(model, fp32.SCHEME, work), "weights")
    assert whole == round(4 * (5_000_000 + 1_000_000) * 1.04)
    eight = term(onnxruntime.memory(model, int8_weight.SCHEME, work), "weights")
    assert eight == round(5_000_000 * 1.125 * 1.55)
    four = term(onnxruntime.memory(model, int4_rtn.SCHEME, work), "weights")
    assert four == round((4_000_000 * 0.625 + 1_000_000 * 1.125) * 1.85)


def test_an_untied_table_stays_in_32_bits() -> None:
    model = dataclasses.replace(sample_model("generate"), tied_embeddings=False, head_parameters=1_000_000)
    four = term(onnxruntime.memory(model, int4_rtn.SCHEME, workload("generate", 1)), "weights")
    assert four == round((3_000_000 * 0.625 + 1_000_000 * 1.125 + 4 * 1_000_000) * 1.85)


def test_kv_cache_is_for_the_requests_in_flight() -> None:
    model = sample_model("generate")
    each = 160 * model.kv_bytes_per_token(32)
    assert term(onnxruntime.memory(model, fp32.SCHEME, workload("generate", 8)), "kv_cache") == 8 * each
    assert term(pytorch.memory(model, fp32.SCHEME, workload("generate", 8)), "kv_cache") == each


def test_vllm_counts_blocks_and_one_request_of_full_length() -> None:
    model = sample_model("generate")
    per_token = model.kv_bytes_per_token(32)
    # 8 requests of 160 tokens take 2 blocks of 128 each, one of 2048 tokens takes as many; one stays empty.
    few = term(vllm_cpu.memory(model, fp32.SCHEME, workload("generate", 8)), "kv_cache")
    assert few == (2048 + 128) * per_token
    many = term(vllm_cpu.memory(model, fp32.SCHEME, workload("generate", 32)), "kv_cache")
    assert many == (32 * 256 + 128) * per_token


def test_a_window_remembers_no_more_than_its_length() -> None:
    model = sample_model("generate")
    windowed = dataclasses.replace(model, groups=(dataclasses.replace(model.groups[0], window=64),))
    assert arithmetic.kv_bytes(windowed, 1000, 16) == arithmetic.kv_bytes(model, 64, 16)


def test_prompts_are_read_in_smaller_pieces_for_a_large_vocabulary() -> None:
    model = sample_model("generate")
    assert arithmetic.prefill_tokens(model) == 2048
    assert arithmetic.prefill_tokens(dataclasses.replace(model, vocab_size=151_936)) == 256


def test_every_measured_number_has_a_source() -> None:
    for engine, tasks in (("onnxruntime", 2), ("pytorch", 2), ("vllm_cpu", 2)):
        for task in ("generate", "embed")[:tasks]:
            found = arithmetic.measured(engine, task)
            assert found.process_bytes > 10_000_000
            assert found.source.startswith("\nmeasured") or found.source.startswith("measured")


def test_activations_are_those_of_the_prompts_that_are_read_at_once() -> None:
    model = sample_model("generate")
    each = 8 * 4096 + 12 * 1024
    assert (
        term(onnxruntime.memory(model, fp32.SCHEME, workload("generate", 4)), "activations") == 4 * 128 * each
    )
    many = term(onnxruntime.memory(model, fp32.SCHEME, workload("generate", 32)), "activations")
    assert many == 2048 * each


# -- settings


def test_an_unknown_number_of_cores_is_left_to_the_engine() -> None:
    model, work = sample_model("generate"), workload("generate", 8)
    for engine in (onnxruntime, pytorch, vllm_cpu):
        names = {s.name for s in engine.settings(model, fp32.SCHEME, work, Host())}
        assert "threads" not in names


def test_the_context_is_what_the_workload_needs_but_room_for_a_person() -> None:
    model = dataclasses.replace(sample_model("generate"), max_position=40_960)
    long = dataclasses.replace(workload("generate", 1), prompt_tokens=Lengths.fixed(8000))
    assert arithmetic.context(model, workload("generate", 1)).value == "2048"
    assert arithmetic.context(model, long).value == "8032"
    assert arithmetic.context(dataclasses.replace(model, max_position=1024), long).value == "1024"


def test_concurrency_is_the_batch_within_reason() -> None:
    found = {n: arithmetic.at_once(workload("generate", n)) for n in (1, 8, 200)}
    assert [found[n].value for n in (1, 8, 200)] == ["1", "8", "32"]
    unknown = arithmetic.at_once(dataclasses.replace(workload("generate", 1), concurrency=None, qps=2.0))
    assert (unknown.value, unknown.source) == ("8", "assumed")


# -- launch


def test_onnxruntime_hands_its_settings_to_the_worker() -> None:
    model, work = sample_model("generate"), workload("generate", 4)
    plan = plan_for(onnxruntime, model, work, scheme="int4_rtn", format="onnx_genai", name="onnxruntime")
    found = onnxruntime.launch(plan, 8123)
    assert found.job == "serve_generate"
    assert found.served_name == "Qwen3-0.6B"
    assert found.request == {
        "backend": "onnx_genai",
        "model": "/models/x",
        "served_name": "Qwen3-0.6B",
        "host": "127.0.0.1",
        "port": 8123,
        "threads": 2,
        "max_model_len": 2048,
        "max_batch_size": 4,
        "max_batched_tokens": 2048,
        "batch_timeout_ms": 2.0,
        "dtype": "int4_rtn",
        "spin": False,
    }
    assert found.env == {"OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "2"}


def test_a_format_that_cannot_do_the_task_is_refused() -> None:
    model, work = sample_model("generate"), workload("generate", 4)
    plan = plan_for(onnxruntime, model, work, scheme="fp32", format="onnx", name="onnxruntime")
    with pytest.raises(UsageError, match="serves `generate` from onnx_genai"):
        onnxruntime.launch(plan, 8123)


def test_pytorch_waits_asleep() -> None:
    model, work = sample_model("embed"), workload("embed", 4)
    plan = plan_for(pytorch, model, work, scheme="fp32", format="safetensors", name="pytorch")
    found = pytorch.launch(plan, 8123)
    assert (found.job, found.request["backend"], found.request["max_batch_size"]) == (
        "serve_embed",
        "torch",
        1,
    )
    assert found.env["OMP_WAIT_POLICY"] == "PASSIVE"


def test_vllm_command_line() -> None:
    model, work = sample_model("generate"), workload("generate", 4)
    plan = plan_for(vllm_cpu, model, work, scheme="bf16", format="safetensors", name="vllm_cpu")
    per_token = model.kv_bytes_per_token(16)
    assert vllm_cpu.launch(plan, 8123).arguments == (
        *("vllm.entrypoints.cli.main", "serve", "/models/x", "--served-model-name", "Qwen3-0.6B"),
        *("--host", "127.0.0.1", "--port", "8123", "--dtype", "bfloat16", "--disable-uvicorn-access-log"),
        *("--generation-config", "vllm", "--max-model-len", "2048", "--max-num-seqs", "4"),
        *("--kv-cache-memory-bytes", str(2176 * per_token), "--block-size", "128", "--enforce-eager"),
    )


def test_vllm_embeds_by_its_pooling_runner() -> None:
    model, work = sample_model("embed"), workload("embed", 4)
    plan = plan_for(vllm_cpu, model, work, scheme="fp32", format="safetensors", name="vllm_cpu")
    words = vllm_cpu.launch(plan, 8123).arguments
    assert words[words.index("--runner") + 1] == "pooling"
    assert "--max-model-len" not in words  # the model's own files say how long its texts may be


def test_a_user_may_listen_on_another_address() -> None:
    model, work = sample_model("generate"), workload("generate", 4)
    plan = plan_for(pytorch, model, work, scheme="fp32", format="safetensors", name="pytorch")
    wide = Setting(name="host", value="0.0.0.0", because="asked", source="user")
    assert (
        pytorch.launch(dataclasses.replace(plan, settings=(*plan.settings, wide)), 1).request["host"]
        == "0.0.0.0"
    )


def test_a_setting_that_is_no_number_is_refused() -> None:
    model, work = sample_model("generate"), workload("generate", 4)
    plan = plan_for(pytorch, model, work, scheme="fp32", format="safetensors", name="pytorch")
    wrong = Setting(name="threads", value="many", because="asked", source="user")
    with pytest.raises(UsageError, match="`threads` is a whole number"):
        pytorch.launch(dataclasses.replace(plan, settings=(wrong,)), 1)

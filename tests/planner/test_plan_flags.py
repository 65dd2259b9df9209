"""Every option of a command that a plan prints is one that the release takes, by the tables of its sources."""

import dataclasses

import pytest

from model_optimizer.core import Lengths, Plan, Setting, Slo, Workload
from model_optimizer.engines import sglang, tensorrt_llm, vllm
from model_optimizer.facts import flags

COMMON = (
    ("max-model-len", "4096"), ("max-num-seqs", "64"), ("max-num-batched-tokens", "2048"),
    ("gpu-memory-utilization", "0.85"), ("kv-cache-dtype", "fp8"), ("tensor-parallel-size", "2"),
    ("quantization", "fp8"), ("enforce-eager", "1"), ("enable-expert-parallel", "1"),
    ("reasoning-parser", "deepseek-r1"), ("tool-call-parser", "mistral"),
)  # fmt: skip


def a_plan(engine: str, version: str, task: str) -> Plan:
    return Plan(
        model="m", checkpoint="m", engine=engine, engine_version=version, scheme="bf16", format="safetensors",
        workload=Workload(task=task, concurrency=1, prompt_tokens=Lengths.fixed(8)), slo=Slo(),  # type: ignore[arg-type]
        settings=tuple(Setting(name=n, value=v, because="test", source="derived") for n, v in COMMON),
    )  # fmt: skip


def check(words: tuple[str, ...], table: flags.Table) -> None:
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        found = table.option(word)
        assert found is not None, f"{table.engine} {table.version} does not take {word}"
        row = found[1]
        if row.takes == "switch":
            continue
        value = words[place + 1]
        assert not value.startswith("--"), f"{word} of {table.engine} {table.version} takes a value"
        assert not row.choices or value in row.choices, f"{word} takes {row.choices}, not {value}"


@pytest.mark.parametrize("version", flags.versions("vllm"))
@pytest.mark.parametrize("task", ["generate", "embed"])
def test_vllm(version: str, task: str) -> None:
    one = a_plan("vllm", version, task)
    settings = tuple(
        dataclasses.replace(s, value="deepseek_r1") if s.name == "reasoning-parser" else s
        for s in one.settings
    )
    check(vllm.command(dataclasses.replace(one, settings=settings)), flags.table("vllm", version))


@pytest.mark.parametrize("version", flags.versions("sglang"))
@pytest.mark.parametrize("task", ["generate", "embed"])
def test_sglang(version: str, task: str) -> None:
    check(sglang.command(a_plan("sglang", version, task)), flags.table("sglang", version))


@pytest.mark.parametrize("version", flags.versions("trtllm_serve"))
def test_trtllm_serve(version: str) -> None:
    check(
        tensorrt_llm.command(a_plan("tensorrt_llm", version, "generate")),
        flags.table("trtllm_serve", version),
    )

"""How the stages of `optimize` are joined, with tools that only count."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_optimizer import api
from model_optimizer.core import Artifact, Lengths, ModelSpec, Needs, Plan, Scheme, Slo, Workload, plugins
from model_optimizer.flow.wiring import Choices, Kit, Wiring

MIB = 1 << 20
TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
MODEL = "Qwen/Qwen3-Embedding-0.6B"


@dataclass(frozen=True, kw_only=True)
class CountingTool:
    """A tool that says what it needs and makes nothing."""

    READS: str
    WRITES: dict[str, str]
    FROM: frozenset[str] = frozenset()
    TASKS: frozenset[str] = frozenset({"embed"})
    ENVIRONMENT: str = "onnx"
    said: Needs = field(default_factory=Needs)

    def needs(self, model: ModelSpec, scheme: Scheme) -> Needs:
        assert scheme.name in self.WRITES
        return self.said


EXPORT = CountingTool(
    READS="safetensors", WRITES={"fp32": "onnx"}, said=Needs(disk_bytes=100 * MIB, memory_bytes=400 * MIB)
)
ROUND = CountingTool(
    READS="onnx",
    WRITES={"int8": "onnx"},
    FROM=frozenset({"fp32"}),
    said=Needs(disk_bytes=25 * MIB, memory_bytes=150 * MIB),
)


def a_plan(scheme: str, *path: str, form: str = "onnx") -> Plan:
    work = Workload(task="embed", concurrency=1, prompt_tokens=Lengths.fixed(8))
    return Plan(
        model=MODEL, checkpoint=MODEL, workload=work, slo=Slo(), engine="onnxruntime", scheme=scheme,
        format=form, path=path,
    )  # fmt: skip


@pytest.fixture
def wiring() -> Wiring:
    schemes = {name: module.SCHEME for name, module in plugins.load_all("model_optimizer.schemes").items()}
    kit = Kit(engines={}, schemes=schemes, tools={"export": EXPORT, "round": ROUND}, checks={})  # type: ignore[dict-item]
    return Wiring(kit, Choices(), api.read_model(MODEL).spec)


CHECKPOINT = Artifact(
    path="m", format="safetensors", scheme="fp32", task="embed", bytes=MIB, digest="sha256:0"
)


def test_the_whole_chain_of_a_plan_counts(wiring: Wiring) -> None:
    found = wiring.stages().needs([a_plan("int8", "export", "round")], CHECKPOINT)
    assert found.disk_bytes == 125 * MIB
    assert found.memory_bytes == 400 * MIB, "tools run one after the other: the largest counts"


def test_a_step_that_plans_share_is_made_once(wiring: Wiring) -> None:
    plans = [a_plan("fp32", "export"), a_plan("int8", "export", "round"), a_plan("bf16", form="safetensors")]
    assert wiring.stages().needs(plans, CHECKPOINT).disk_bytes == 125 * MIB
    assert wiring.stages().needs(plans[2:], CHECKPOINT) == Needs()


def test_what_is_measured_carries_its_timeline(wiring: Wiring) -> None:
    """A report draws distributions and a timeline from it."""
    command = [sys.executable, "-m", "model_optimizer.testing.fake_server", "--tpot-ms", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            work = Workload(
                concurrency=2, requests=6, prompt_tokens=Lengths.fixed(8), output_tokens=Lengths.fixed(4)
            )
            plan = replace(a_plan("bf16", form="safetensors"), workload=work, checkpoint=str(TINY))
            server = SimpleNamespace(url=url, pid=process.pid, served_name="fake")
            found = wiring.stages().measure(server, plan, lambda *_: None)
        finally:
            process.terminate()
    assert [p.completed for p in found.points] == [6, 6]
    loads = found.telemetry["loads"]
    assert isinstance(loads, list) and len(loads) == 2
    assert all(len(load["quantiles"]["ttft_ms"]) > 3 for load in loads)
    assert {"server.rss_bytes", "client.in_flight"} <= set(found.telemetry["series"])
    assert "gpu" not in found.telemetry["missing"]

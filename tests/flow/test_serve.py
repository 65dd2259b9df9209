"""A start as `mopt serve` makes it, with interpreters that play SGLang, TensorRT-LLM and vLLM."""

import dataclasses
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import (
    Artifact,
    Cpu,
    Gpu,
    GpuMemory,
    Host,
    HostError,
    Launch,
    MoptError,
    Plan,
    Setting,
    Slo,
    ToolError,
    UsageError,
    Workload,
    plugins,
)
from model_optimizer.flow.serve import How, NextPlan, Room, Started, begin, explained, prepared, shown
from model_optimizer.schemes import bf16
from model_optimizer.serve import Order, start_launch, starts
from model_optimizer.system import ledger
from model_optimizer.system.processes import Rotation, Running

from .test_next_plan import fit

HERE = Path(__file__).parents[1] / "serve"
ENGINES = plugins.load_all("model_optimizer.engines")
GIB = 2**30
GPU = GpuMemory(name="H200", total_bytes=140 * GIB, compute_capability=(9, 0))
HOST = Host(gpus=(Gpu(name="H200"),), cpu=Cpu(cores=2))


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says how the engine behaves, one word a start."""
    script = tmp_path / "played"
    script.write_text("good")
    monkeypatch.setenv("PLAYED", str(script))
    monkeypatch.setenv("MOPT_HOME", str(tmp_path / "home"))
    return script


def python(tmp_path: Path, engine: str) -> Path:
    """An interpreter that has nothing but the engine."""
    tool = tmp_path / f"python-{engine}"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "played_engine.py"} {engine} "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return tool


def order(engine: str, tmp_path: Path, **settings: str) -> Order:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    plan = Plan(
        model="somebody/a-model",
        checkpoint=str(folder),
        workload=Workload(task="generate"),
        slo=Slo(),
        engine=engine,
        scheme="bf16",
        format="safetensors",
        settings=tuple(
            Setting(name=name.replace("_", "-"), value=value, because="so", source="derived")
            for name, value in settings.items()
        ),
    )
    artifact = Artifact(
        path=str(folder), format="safetensors", scheme="bf16", task="generate", bytes=1, digest="sha256:7"
    )
    return Order(plan=plan, artifact=artifact)


def room(**more: Any) -> Room:
    known: dict[str, Any] = {
        "host": HOST,
        "fit": lambda question: fit(fits=True),
        "scheme": lambda name: bf16.SCHEME,
        "gpu": lambda: GPU,
        "held": lambda: None,
        "holders": lambda: (),
    }
    return Room(**{**known, **more})


def serve(
    engine: str, tmp_path: Path, made: Order | None = None, where: Room | None = None, **how: Any
) -> Started:
    said: list[str] = how.pop("said", [])
    return begin(
        made or order(engine, tmp_path),
        ENGINES[engine],
        where or room(),
        How(log=tmp_path / "serve.log", python=how.pop("python", python(tmp_path, engine)), **how),
        lambda text, _share: said.append(text),
    )


def arguments(played: Path) -> list[list[str]]:
    return [json.loads(line) for line in played.with_suffix(".starts").read_text().splitlines()]


@pytest.fixture
def vllm_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """vLLM has a lock, whose packages are asked for: this one says that it has them."""
    from model_optimizer.system.environments import pythons

    monkeypatch.setattr(pythons, "misfits", lambda _recipe, _python: ())
    return python(tmp_path, "vllm")


@pytest.mark.parametrize(
    ("engine", "module", "tokens", "phases"),
    [
        (
            "sglang",
            "sglang.launch_server",
            443110,
            {"loading weights", "capturing CUDA graphs", "warming up"},
        ),
        ("tensorrt_llm", "tensorrt_llm.commands.serve", 432512, {"loading weights", "capturing CUDA graphs"}),
    ],
)
def test_engines_with_a_command_of_their_own(
    engine: str, module: str, tokens: int, phases: set[str], played: Path, tmp_path: Path
) -> None:
    made = order(engine, tmp_path, max_model_len="4096", tensor_parallel_size="2")
    found = serve(engine, tmp_path, made)
    with found.server as server:
        assert server.alive()
        (words,) = (w for w in arguments(played) if "-c" not in w)
        assert server.start is not None
        seen = {phase.name for phase in server.start.phases}
    assert words[:3] == ["-P", "-m", module]
    assert "127.0.0.1" in words
    assert phases <= seen
    (said,) = found.compared
    assert (said.quantity, said.printed, said.predicted) == ("kv_cache_tokens", tokens, None)


def test_a_second_start_knows_how_long_the_first_took(played: Path, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with serve("sglang", tmp_path, said=said).server:
            pass
    kept = list(starts.folder().glob("sglang-*.json"))
    assert len(kept) == 1
    assert len(json.loads(kept[0].read_text())["starts"]) == 2


def test_the_printed_cache_beside_the_prediction_is_kept(
    played: Path, tmp_path: Path, vllm_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_optimizer.flow import serve as flow
    from model_optimizer.testing.engine_contract import sample_model

    monkeypatch.setattr(flow, "_model", lambda _order: sample_model("generate"))
    said = dataclasses.replace(fit(fits=True), kv_cache_tokens=800_000, max_concurrency=97.66)
    where = room(fit=lambda question: said)
    with (found := serve("vllm", tmp_path, where=where, python=vllm_python)).server:
        pass
    by_name = {one.quantity: one for one in found.compared}
    assert by_name["kv_cache_tokens"].printed == 814_368
    assert by_name["kv_cache_tokens"].error == pytest.approx(800_000 / 814_368 - 1)
    assert by_name["max_concurrency"].printed == 99.41
    rows = {row.quantity: row for row in ledger.read()}
    assert (rows["kv_cache_tokens"].measured, rows["kv_cache_tokens"].predicted) == (814_368, 800_000)
    assert rows["kv_cache_tokens"].unit == "tokens"
    assert rows["max_concurrency"].engine == "vllm"


def test_memory_as_the_cause_names_the_next_plan(played: Path, tmp_path: Path, vllm_python: Path) -> None:
    played.write_text("kv-too-small")
    made = order("vllm", tmp_path, max_model_len="40960")
    with pytest.raises(NextPlan) as caught:
        serve("vllm", tmp_path, made, python=vllm_python)
    assert caught.value.change.settings == {"max-model-len": "20464"}
    assert caught.value.cause[0].startswith("vllm-kv-too-small: One request of the full context")
    assert "20,464 tokens" in shown(caught.value.change)


def test_the_next_plan_is_taken_where_that_is_allowed(
    played: Path, tmp_path: Path, vllm_python: Path
) -> None:
    played.write_text("kv-too-small oom good")
    said: list[str] = []
    made = order("vllm", tmp_path, max_model_len="40960", max_num_seqs="64")
    found = serve("vllm", tmp_path, made, python=vllm_python, adapt=4, said=said)
    with found.server:
        assert [dict(change.settings) for change in found.changes] == [
            {"max-model-len": "20464"},
            {"max-num-seqs": "32"},
        ]
        last = arguments(played)[-1]
        assert last[last.index("--max-model-len") + 1] == "20464"
        assert last[last.index("--max-num-seqs") + 1] == "32"
    assert any("next: max-model-len=20464" in text for text in said)
    assert found.order.plan.setting("max-num-seqs") == "32"


def test_adapting_has_an_end(played: Path, tmp_path: Path, vllm_python: Path) -> None:
    played.write_text("oom")
    made = order("vllm", tmp_path, max_num_seqs="64")
    with pytest.raises(NextPlan) as caught:
        serve("vllm", tmp_path, made, python=vllm_python, adapt=2)
    assert len(arguments(played)) == 3
    assert caught.value.change.settings == {"max-num-seqs": "8"}


def test_what_memory_did_not_cause_is_not_adapted(played: Path, tmp_path: Path, vllm_python: Path) -> None:
    played.write_text("no-model")
    with pytest.raises(ToolError) as caught:
        serve("vllm", tmp_path, python=vllm_python, adapt=4)
    assert not isinstance(caught.value, NextPlan)
    assert len(arguments(played)) == 1


def test_a_failure_of_an_earlier_start_in_the_log_is_not_the_cause(
    played: Path, tmp_path: Path, vllm_python: Path
) -> None:
    (tmp_path / "serve.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n" * 3
    )
    played.write_text("no-model")
    with pytest.raises(MoptError) as caught:
        serve("vllm", tmp_path, python=vllm_python, adapt=4)
    assert not any("cuda-oom" in line for line in caught.value.cause)


@pytest.mark.parametrize(("lines", "dies_of"), [(3, "unknown"), (3000, "kv-too-small")])
def test_what_an_image_pull_wrote_is_not_what_the_engine_said(
    lines: int, dies_of: str, played: Path, tmp_path: Path, vllm_python: Path
) -> None:
    """It wrote so much in the second case that the engine's words are in a new file."""
    rotation = Rotation(limit_bytes=1 << 16)

    def pull_and_start(launch: Launch, log: Path) -> Running:
        with log.open("a") as stream:
            stream.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n" * lines)
        return start_launch(launch, log, python=vllm_python, rotation=rotation)

    played.write_text(dies_of)
    made = order("vllm", tmp_path, max_model_len="40960")
    (tmp_path / "serve.log").write_text("an earlier start\n" * 100)
    with pytest.raises(ToolError) as caught:
        serve("vllm", tmp_path, made, rotation=rotation, start_process=pull_and_start)
    assert not any("cuda-oom" in line for line in caught.value.cause)
    assert isinstance(caught.value, NextPlan) == (dies_of == "kv-too-small")


def test_a_start_that_hangs_says_what_it_was_doing(played: Path, tmp_path: Path) -> None:
    played.write_text("hangs")
    with pytest.raises(ToolError, match="not ready after 1 s") as caught:
        serve("sglang", tmp_path, limit_s=1.0)
    assert caught.value.reference == "start-timed-out"
    assert any("it was warming up" in line for line in caught.value.cause)
    assert "--start-limit" in " ".join(caught.value.hint)


def test_a_plan_for_a_gpu_is_refused_where_there_is_none(played: Path, tmp_path: Path) -> None:
    made = order("sglang", tmp_path)
    planned = dataclasses.replace(made, plan=dataclasses.replace(made.plan, gpu="H100 SXM"))
    with pytest.raises(HostError, match=r"SGLang needs a GPU.*the plan is for H100 SXM"):
        serve("sglang", tmp_path, planned, room(host=Host(gpus=())))
    assert not played.with_suffix(".starts").exists()


def test_a_gpu_that_somebody_holds_is_said_before_the_start(
    played: Path, tmp_path: Path, vllm_python: Path
) -> None:
    made = order("vllm", tmp_path, gpu_memory_utilization="0.9")
    taken = room(held=lambda: (60 * GIB, 140 * GIB), holders=lambda: ("process 7 (python): 60 GiB",))
    with pytest.raises(HostError, match="another process holds memory of the GPU") as caught:
        serve("vllm", tmp_path, made, taken, python=vllm_python)
    assert "process 7 (python): 60 GiB" in caught.value.cause
    assert "--set gpu-memory-utilization=0.56" in caught.value.hint[0]
    assert not played.with_suffix(".starts").exists()
    quiet = room(held=lambda: (GIB // 2, 140 * GIB))
    with serve("vllm", tmp_path, made, quiet, python=vllm_python).server:
        pass


def test_a_key_that_the_server_would_not_ask_for_is_refused(tmp_path: Path) -> None:
    how = How(log=tmp_path / "log", key="secret")
    with pytest.raises(UsageError, match="SGLang cannot be handed a key"):
        prepared(order("sglang", tmp_path), ENGINES["sglang"], how)
    assert prepared(order("vllm", tmp_path), ENGINES["vllm"], how) is ENGINES["vllm"]


def test_a_graph_is_no_engine_yet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs engines, and"):
        prepared(order("tensorrt", tmp_path), ENGINES["tensorrt"], How(log=tmp_path / "log"))


def test_a_death_is_explained_by_its_own_part_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n")
    error = explained(ToolError("`m` ended", cause=("exit code 1",)), None, log)
    assert error.cause[0].startswith("cuda-oom: ")
    assert error.cause[-1] == "exit code 1"
    plain = UsageError("not a tool")
    assert explained(plain, None, log) is plain


@pytest.mark.parametrize(("planned", "warns"), [("0.5.23", True), ("9.9.1", False), (None, False)])
def test_another_release_than_the_plans_is_said(
    planned: str | None, warns: bool, played: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    made = order("sglang", tmp_path)
    made = dataclasses.replace(made, plan=dataclasses.replace(made.plan, engine_version=planned))
    with serve("sglang", tmp_path, made, said=said).server:
        pass
    found = [text for text in said if "is installed: defaults and options may differ" in text]
    assert bool(found) is warns
    if warns:
        assert found[0].startswith("the plan is for SGLang 0.5.23, 9.9 is installed")

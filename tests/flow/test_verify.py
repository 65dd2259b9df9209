"""How a candidate is verified: by its file, or through a server that runs for nothing else."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import (
    Artifact,
    Engine,
    MoptError,
    Plan,
    Run,
    ToolError,
    UsageError,
    Verdict,
    plugins,
)
from model_optimizer.flow import verify as flow
from model_optimizer.flow.verify import Case, Desk, verify_candidate
from model_optimizer.system import environments, runs
from model_optimizer.testing import records
from model_optimizer.verify import Endpoint, texts

TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
ENGINES: dict[str, Engine] = plugins.load_all("model_optimizer.engines")


class World:
    """Stands in for the verifier and for the start of a server, and notes the order of what happens."""

    url, served_name = "http://127.0.0.1:4321", "tiny"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.subject: Artifact | Endpoint | None = None
        self.run: Any = None
        self.breaks: MoptError | None = None
        self.living = True
        monkeypatch.setattr(flow.verify, "verify_model", self.verify_model)
        monkeypatch.setattr(flow.verify, "run_reference", lambda *_, **__: self.calls.append("reference"))
        monkeypatch.setattr(flow, "start", self.start)

    def verify_model(self, subject: Artifact | Endpoint, *_: object, run: object, **__: object) -> Verdict:
        self.calls.append("verify")
        self.subject, self.run = subject, run
        if self.breaks:
            raise self.breaks
        return records.verdict("bf16", "pass", 1.0, 0.99)

    def start(self, plan: Plan, artifact: Artifact, **options: Any) -> "World":
        self.calls.append(f"start {plan.engine} in {options['log'].name}")
        return self

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("stop")

    def alive(self) -> bool:
        return self.living

    def why_ended(self) -> MoptError:
        return ToolError("the server ran out of memory")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Verdict]:
    def go(engine: str, scheme: str, path: tuple[str, ...] = ()) -> Verdict:
        case = Case(
            candidate=records.artifact(scheme, 1),
            reference=records.artifact("fp32", 1),
            gate=plugins.load("model_optimizer.schemes", scheme).SCHEME.gate,
            texts=texts.builtin(),
            served=(records.plan(engine, scheme, path), ENGINES[engine]),
        )
        desk = Desk(scratch=tmp_path, log=tmp_path / "server.log")
        return verify_candidate(case, desk, lambda _text, _share: None)

    return go


def test_an_engine_that_loads_the_original_is_asked_while_it_runs(
    world: World, judge: Callable[..., Verdict]
) -> None:
    judge("vllm_cpu", "bf16")
    assert world.calls == ["reference", "start vllm_cpu in server.log", "verify", "stop"]
    assert world.subject == Endpoint(
        url="http://127.0.0.1:4321", served_name="tiny", scheme="bf16", task=records.artifact("bf16", 1).task
    )


@pytest.mark.parametrize(
    ("engine", "scheme", "path"),
    [("onnxruntime", "int8_weight", ("onnx_genai",)), ("pytorch", "bf16", ())],
)
def test_a_file_that_the_verifier_can_run_needs_no_server(
    world: World, judge: Callable[..., Verdict], engine: str, scheme: str, path: tuple[str, ...]
) -> None:
    judge(engine, scheme, path)
    assert world.calls == ["verify"]
    assert isinstance(world.subject, Artifact)
    assert world.subject.scheme == scheme, "PyTorch runs it in this number type"


def test_the_server_is_stopped_whatever_happens(world: World, judge: Callable[..., Verdict]) -> None:
    world.breaks = ToolError("it refused")
    with pytest.raises(ToolError, match="it refused"):
        judge("vllm_cpu", "bf16")
    assert world.calls[-1] == "stop"


def test_a_server_that_ended_says_why(world: World, judge: Callable[..., Verdict]) -> None:
    world.breaks, world.living = ToolError("nobody answers"), False
    with pytest.raises(ToolError, match="ran out of memory"):
        judge("vllm_cpu", "bf16")


def verified(*words: str | Path) -> BaseException | None:
    return CliRunner().invoke(app, ["verify", *map(str, words), "--json"]).exception


def test_a_url_on_the_command_line(world: World) -> None:
    """Nothing tells what it computes in, so the original's number type is what it is held to."""
    verified("http://127.0.0.1:8000/v1", "--against", TINY)
    assert world.subject == Endpoint(url="http://127.0.0.1:8000", scheme="bf16", task="generate")
    verified("http://127.0.0.1:8000", "--against", TINY, "--scheme", "FP32")
    assert world.subject == Endpoint(url="http://127.0.0.1:8000", scheme="fp32", task="generate")
    assert world.calls == ["verify", "verify"]
    wrong = verified("http://example.org", "--against", TINY)
    assert isinstance(wrong, UsageError)


def test_the_key_reaches_the_server_of_the_user_and_nobody_else(
    world: World, judge: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOPT_API_KEY", "secret")
    verified("http://127.0.0.1:8000", "--against", TINY)
    assert isinstance(world.run, functools.partial)
    assert world.run.func is environments.run_worker
    assert world.run.keywords == {"env": {"MOPT_API_KEY": "secret"}}
    judge("vllm_cpu", "bf16")
    assert world.run is environments.run_worker
    judge("pytorch", "bf16")
    assert world.run is environments.run_worker


def test_a_checkpoint_on_the_command_line_runs_in_the_scheme_that_is_named(world: World) -> None:
    verified(TINY, "--against", TINY)
    assert isinstance(world.subject, Artifact)
    assert world.subject.scheme == "bf16"
    verified(TINY, "--against", TINY, "--scheme", "fp16")
    assert world.subject.scheme == "fp16"


def test_a_candidate_of_a_run_is_verified_as_the_run_does(world: World, tmp_path: Path) -> None:
    """Its artefact is the original's: without the plan, PyTorch would be verified in place of vLLM."""
    folder = runs.create(tmp_path, "tiny")
    folder.write(Run(command=(), version="0", created="now", model="tiny"), "run")
    for name in ("reference", "vllm_cpu-bf16"):
        folder.write_artifact(dataclasses.replace(records.artifact("bf16", 1), path=str(tmp_path)), name)
    folder.write(records.plan("vllm_cpu", "bf16"), "candidates/vllm_cpu-bf16/plan")
    verified("vllm_cpu-bf16", "--run", folder.path)
    assert world.calls == ["reference", "start vllm_cpu in verify-vllm_cpu-bf16.log", "verify", "stop"]
    assert folder.read(Verdict, "candidates/vllm_cpu-bf16/verdict-model") is not None

"""Making with stand-ins for workers and tools: whole or not there, described, and not made twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import (
    Artifact,
    HostError,
    Needs,
    Plan,
    Slo,
    ToolError,
    UsageError,
    Workload,
    plugins,
)
from model_optimizer.core.paths import Hop
from model_optimizer.system import making
from model_optimizer.system.making import Bench, WorkerJob, follow, made_by_worker, make_plan
from model_optimizer.testing.contracts import artifact_contract

SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
JOB = WorkerJob(
    tool="t", environment="onnx", worker="w", request={"bits": 4}, scheme="int4_rtn", format="onnx"
)


def quiet(_text: str, _share: float | None) -> None:
    pass


def source(tmp_path: Path) -> Artifact:
    return Artifact(
        path=str(tmp_path / "m"), format="safetensors", scheme="bf16", task="embed", bytes=9,
        digest="sha256:" + "a" * 64, notes=("before",),
    )  # fmt: skip


def test_a_worker_fills_a_folder_that_appears_whole(tmp_path: Path) -> None:
    out, seen = tmp_path / "out", {}

    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        seen.update(request, environment=environment, worker=worker, there=out.exists())
        folder = Path(request["out"])
        (folder / "deep").mkdir()
        (folder / "model.onnx").write_bytes(b"12345")
        (folder / "deep" / "x").write_bytes(b"678")
        return {"versions": {"a": "1", "b": "2"}, "notes": ["after"]}

    made = made_by_worker(JOB, source(tmp_path), out, run=run, progress=quiet)
    artifact_contract(made)
    assert seen.pop("out") != str(out)
    assert seen == {
        "source": str(tmp_path / "m"), "scheme": "int4_rtn", "bits": 4, "environment": "onnx", "worker": "w",
        "there": False,
    }  # fmt: skip
    assert (made.path, made.bytes, made.scheme, made.format) == (str(out), 8, "int4_rtn", "onnx")
    assert made.made_from == "sha256:" + "a" * 64
    assert made.made_by is not None
    assert (made.made_by.tool, made.made_by.version) == ("t", "a 1, b 2")
    assert made.notes == ("before", "after")


def test_a_worker_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def run(environment: str, worker: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        (Path(request["out"]) / "half").write_bytes(b"x")
        raise ToolError("broken")

    with pytest.raises(ToolError, match="broken"):
        made_by_worker(JOB, source(tmp_path), tmp_path / "out", run=run, progress=quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_makes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="without making anything"):
        made_by_worker(JOB, source(tmp_path), tmp_path / "out", run=lambda *_: {}, progress=quiet)
    assert list(tmp_path.iterdir()) == []


@dataclass
class FakeTool:
    """Writes its own name into a folder."""

    READS: str
    WRITES: dict[str, str]
    FROM: frozenset[str] = frozenset({"fp32", "bf16"})
    TASKS: frozenset[str] = frozenset({"embed"})
    ENVIRONMENT: str = "onnx"
    fails: bool = False
    places: list[Path] = field(default_factory=list)

    def needs(self, model: Any, scheme: Any) -> Needs:
        return Needs(disk_bytes=1, memory_bytes=1)

    def make(self, source: Artifact, scheme: Any, out: Path, *, run: Any, progress: Any) -> Artifact:
        self.places.append(out)
        progress("working", 0.5)
        if self.fails:
            raise ToolError("no")
        out.mkdir(parents=True)
        (out / "model").write_text(scheme.name)
        made_from = source.digest
        name = f"sha256:{scheme.name.encode().hex():0<64}"
        return replace(
            source, path=str(out), scheme=scheme.name, format=self.WRITES[scheme.name], digest=name,
            made_from=made_from,
        )  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    tools = {
        "export": FakeTool("safetensors", {"fp32": "onnx"}),
        "dynamic": FakeTool("onnx", {"int8": "onnx"}),
        "blockwise": FakeTool("onnx", {"int4_rtn": "onnx"}),
    }
    return Bench(tools=tools, schemes=SCHEMES, run=lambda *_: {})


CHAIN = (Hop(tool="export", scheme="fp32", format="onnx"), Hop(tool="dynamic", scheme="int8", format="onnx"))


def test_a_chain_leaves_only_its_end(tmp_path: Path, bench: Bench) -> None:
    said: list[tuple[str, float | None]] = []
    out = tmp_path / "made" / "here"
    made = follow(CHAIN, source(tmp_path), out, bench, lambda text, share: said.append((text, share)))
    assert made.path == str(out)
    assert [p.name for p in out.parent.iterdir()] == ["here"]
    assert said == [("working", 0.25), ("working", 0.75)]


def test_a_chain_that_breaks_leaves_nothing(tmp_path: Path, bench: Bench) -> None:
    bench.tools["dynamic"].fails = True
    with pytest.raises(ToolError):
        follow(CHAIN, source(tmp_path), tmp_path / "here", bench, quiet)
    assert list(tmp_path.iterdir()) == []


def plan(scheme: str, *names: str) -> Plan:
    return Plan(
        model="m", checkpoint="/m", workload=Workload(), slo=Slo(), engine="onnxruntime", scheme=scheme,
        format="onnx", path=names,
    )  # fmt: skip


def test_candidates_share_the_steps_of_their_paths(tmp_path: Path, bench: Bench) -> None:
    folder = tmp_path / "artifacts"
    first = make_plan(plan("int8", "export", "dynamic"), source(tmp_path), folder, bench, quiet)
    second = make_plan(plan("int4_rtn", "export", "blockwise"), source(tmp_path), folder, bench, quiet)
    again = make_plan(plan("int8", "export", "dynamic"), source(tmp_path), folder, bench, quiet)
    assert again == first
    assert (first.path, second.path) == (str(folder / "dynamic-int8"), str(folder / "blockwise-int4_rtn"))
    assert [len(tool.places) for tool in bench.tools.values()] == [1, 1, 1]


def test_another_checkpoint_is_made_anew(tmp_path: Path, bench: Bench) -> None:
    make_plan(plan("fp32", "export"), source(tmp_path), tmp_path, bench, quiet)
    other = replace(source(tmp_path), digest="sha256:" + "b" * 64)
    made = make_plan(plan("fp32", "export"), other, tmp_path, bench, quiet)
    assert made.made_from == other.digest
    assert len(bench.tools["export"].places) == 2


def test_a_folder_without_its_note_is_made_anew(tmp_path: Path, bench: Bench) -> None:
    """So it looks when the power went between the two."""
    make_plan(plan("fp32", "export"), source(tmp_path), tmp_path, bench, quiet)
    (tmp_path / "export-fp32.json").unlink()
    make_plan(plan("fp32", "export"), source(tmp_path), tmp_path, bench, quiet)
    assert len(bench.tools["export"].places) == 2


def test_a_run_folder_can_be_moved(tmp_path: Path, bench: Bench) -> None:
    make_plan(plan("fp32", "export"), source(tmp_path), tmp_path / "a", bench, quiet)
    (tmp_path / "a").rename(tmp_path / "b")
    made = make_plan(plan("fp32", "export"), source(tmp_path), tmp_path / "b", bench, quiet)
    assert made.path == str(tmp_path / "b" / "export-fp32")
    assert len(bench.tools["export"].places) == 1


def test_a_plan_of_unknown_tools_is_refused(tmp_path: Path, bench: Bench) -> None:
    with pytest.raises(UsageError, match="magic"):
        make_plan(plan("int8", "export", "magic"), source(tmp_path), tmp_path, bench, quiet)


def test_places_that_hold_something_are_refused(tmp_path: Path) -> None:
    making.require_new(tmp_path / "new")
    making.require_new(tmp_path)
    (tmp_path / "file").write_text("x")
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="exists already"):
            making.require_new(taken)


def test_places_that_cannot_be_taken_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = source(tmp_path)
    Path(model.path).mkdir()
    (tmp_path / "link").symlink_to(model.path)
    for inside in (Path(model.path) / "new", tmp_path / "link" / "a" / "b"):
        with pytest.raises(UsageError, match="inside of the model"):
            making.require_new(inside, model)
    making.require_new(tmp_path / "m-2", model)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is no folder"):
        making.require_new(tmp_path / "file" / "new")
    with pytest.raises(HostError, match="cannot be written"):
        making.require_new(tmp_path / ("n" * 300))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(HostError) as caught:
        making.require_new(tmp_path / "new")
    assert caught.value.reference == "not-writable"


def test_room_is_asked_for_before_work(tmp_path: Path) -> None:
    making.require_room(Needs(memory_bytes=10), tmp_path, None)
    making.require_room(Needs(memory_bytes=10), tmp_path, 10)
    with pytest.raises(HostError, match="of memory") as memory:
        making.require_room(Needs(memory_bytes=11), tmp_path, 10)
    assert memory.value.reference == "out-of-memory"
    with pytest.raises(HostError, match="of disk"):
        making.require_room(Needs(disk_bytes=1 << 60), tmp_path, None)

"""What is settled before a conversion: the tools, the GPUs, the profiles; and how a chain is followed."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.convert import _chain
from model_optimizer.convert._engine import require_targets
from model_optimizer.convert._profiles import Asked, parse
from model_optimizer.convert.run import Choices, Kit, Wish, onnx_source, prepare
from model_optimizer.core import Artifact, HostError, Lengths, ModelSpec, UsageError, digest, plugins
from model_optimizer.core.paths import Order
from model_optimizer.core.protocols import Progress
from model_optimizer.facts import engine_limits
from model_optimizer.system import environments, onnx_files, onnx_header, unfinished
from model_optimizer.system.making import Bench
from model_optimizer.testing.contracts import tool_contract
from model_optimizer.testing.graphs import FLOAT, HALF, graph

ROOMS = ("model_optimizer.convert", "model_optimizer.quantize")
TOOLS = {n: m for room in ROOMS for n, m in plugins.load_all(room).items() if n != "run"}
SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
KIT = Kit(tools=TOOLS, schemes=SCHEMES)
BERT = ModelSpec(
    name="bert", architecture="BertModel", model_type="bert", task="embed", parameters=22_565_376,
    active_parameters=22_565_376, embedding_parameters=11_917_824, layers=6, hidden_size=384, intermediate_size=1536,
    vocab_size=30_522, heads=12, kv_heads=12, head_dim=32, attention="mha", groups=(), max_position=512,
)  # fmt: skip


def order(*formats: str, model: ModelSpec = BERT, form: str = "safetensors", scheme: str = "fp32") -> Order:
    source = Artifact(path="/m", format=form, scheme=scheme, task=model.task, bytes=1, digest="sha256:0")
    return Order(model=model, source=source, scheme="fp32", formats=formats)


def tools_of(found: Any) -> list[str]:
    return [hop.tool for hop in found.work.chain]


@pytest.mark.parametrize(
    "name",
    [
        "onnx_clean",
        "onnx_cast",
        "onnx_qdq",
        "onnx_taken",
        "onnx_vision",
        "onnx_prefill",
        "engine_tensorrt_rtx",
        "engine_tensorrt",
    ],
)
def test_contract(name: str) -> None:
    tool_contract(name, TOOLS[name], SCHEMES, BERT)


def test_an_engine_is_built_in_fp16_where_nothing_is_said() -> None:
    found = prepare(order("tensorrt_rtx_engine"), Wish(), KIT)
    assert tools_of(found) == ["onnx_from_torch", "onnx_clean", "onnx_cast", "engine_tensorrt_rtx"]
    assert found.work.chain[-1].scheme == "fp16"


@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4_rtn"])
def test_narrow_engines_are_calibrated_in_the_graph(scheme: str) -> None:
    found = prepare(order("tensorrt_rtx_engine"), Wish(), KIT, scheme=scheme)
    assert tools_of(found) == ["onnx_from_torch", "onnx_clean", "onnx_qdq", "engine_tensorrt_rtx"]


def test_an_engine_in_32_bits_is_only_cleaned_up() -> None:
    found = prepare(order("tensorrt_engine"), Wish(), KIT, scheme="fp32")
    assert tools_of(found) == ["onnx_from_torch", "onnx_clean", "engine_tensorrt"]


def test_quantize_and_optimize_keep_their_shortest_ways() -> None:
    found = prepare(order("onnx"), Wish(), KIT, scheme="int8")
    assert tools_of(found) == ["onnx_from_torch", "onnx_dynamic"]


def test_a_decoder_for_onnx_runtime_keeps_its_cache_and_for_an_engine_is_told_what_it_is() -> None:
    model = replace(BERT, architecture="Qwen3ForCausalLM", task="generate")
    assert tools_of(prepare(order("onnx_genai", "onnx", model=model), Wish(), KIT)) == ["onnx_genai"]
    found = prepare(order("tensorrt_rtx_engine", model=model), Wish(), KIT)
    assert tools_of(found)[0] == "onnx_prefill"
    assert "vLLM or TensorRT-LLM's PyTorch backend" in found.work.notes[0]


@pytest.mark.parametrize(
    ("capability", "scheme", "says"),
    [
        ("9.0", "fp16", "builds nothing for compute capability 9.0"),
        ("7.5", "fp32", "fp32 cannot be built for compute capability 7.5"),
        ("8.6", "fp8", "fp8 cannot be built for compute capability 8.6"),
    ],
)
def test_gpus_that_cannot_take_it_are_refused_before_work(capability: str, scheme: str, says: str) -> None:
    wish = Wish(build=Choices(capabilities=("8.9", capability)))
    with pytest.raises(UsageError, match=says):
        prepare(order("tensorrt_rtx_engine"), wish, KIT, scheme=scheme)


def test_every_target_takes_fp16() -> None:
    limits = engine_limits.limits("tensorrt_rtx")
    require_targets(tuple(t.dotted for t in limits.target), "fp16")
    assert [t.dotted for t in limits.targets("fp8")] == ["8.9", "12.0", "12.1"]


@pytest.mark.parametrize(
    "build",
    [
        Choices(strip_weights=True),
        Choices(version_compatible=True),
        Choices(hardware_compatible=True),
        Choices(profiles=(parse("batch=1:8:32,sequence=1:64:128"),), asked=Asked(lengths=Lengths.fixed(200))),
        Choices(asked=Asked(lengths=Lengths.fixed(600))),
    ],
)
def test_what_contradicts_itself_is_refused_before_work(build: Choices) -> None:
    with pytest.raises(UsageError):
        prepare(order("tensorrt_rtx_engine"), Wish(build=build), KIT)


def test_tensorrt_builds_for_the_gpu_that_is_there() -> None:
    with pytest.raises(UsageError, match="the GPU of the machine"):
        prepare(order("tensorrt_engine"), Wish(build=Choices(capabilities=("8.9",))), KIT)


def test_a_bare_graph_is_a_source_by_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with pytest.raises(UsageError, match="there is no file"):
        onnx_source(path)
    path.write_bytes(graph(weight=FLOAT))
    spec, source = onnx_source(path)
    assert (spec.parameters, source.format, source.scheme) == (64, "onnx_file", "fp32")
    wish = Wish(build=Choices(profiles=(parse("rows=1:2:4"),)))
    engine = Order(model=spec, source=source, scheme="fp32", formats=("tensorrt_rtx_engine",))
    assert tools_of(prepare(engine, wish, KIT)) == ["onnx_taken", "onnx_clean", "engine_tensorrt_rtx"]
    cast = ["onnx_taken", "onnx_clean", "onnx_cast", "engine_tensorrt_rtx"]
    assert tools_of(prepare(engine, wish, KIT, scheme="fp16")) == cast
    with pytest.raises(UsageError, match="no sizes are given for the free dimensions rows"):
        prepare(engine, Wish(), KIT)
    path.write_bytes(graph(weight=HALF))
    spec, source = onnx_source(path)
    engine = Order(model=spec, source=source, scheme="fp16", formats=("tensorrt_rtx_engine",))
    assert tools_of(prepare(engine, wish, KIT)) == ["onnx_taken", "engine_tensorrt_rtx"]


def test_the_digest_of_a_bare_graph_covers_its_weights_beside_it(tmp_path: Path) -> None:
    path, data = tmp_path / "net.onnx", tmp_path / "weights/net.bin"
    path.write_bytes(graph(beside="weights/net.bin"))
    data.parent.mkdir()
    data.write_bytes(bytes(256))
    _spec, source = onnx_source(path)
    assert source.bytes == path.stat().st_size + 256
    assert source.digest == onnx_files.content_digest(path, onnx_header.read(path)) != digest.of_path(path)
    data.write_bytes(b"1" * 256)
    assert onnx_source(path)[1].digest != source.digest


def test_a_graph_is_refused_by_its_opset_before_work(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph(opset=99))
    spec, source = onnx_source(path)
    engine = Order(model=spec, source=source, scheme="fp32", formats=("tensorrt_rtx_engine",))
    with pytest.raises(UsageError) as caught:
        prepare(engine, Wish(build=Choices(profiles=(parse("rows=1:2:4"),))), KIT)
    assert caught.value.reference == "opset-too-new"


def test_every_link_of_a_chain_can_be_followed_back(tmp_path: Path) -> None:
    """A worker that writes what it was asked; the chain adds the links and the scripts."""

    def run(environment: str, job: str, request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
        del environment, progress
        (Path(request["out"]) / "model.onnx").write_text(job)
        return {"versions": {"lib": "1.0"}, "notes": [job]}

    found = prepare(order("tensorrt_rtx_engine"), Wish(), KIT)
    bench = Bench(tools=found.tools, schemes=SCHEMES, run=run)
    out, steps = tmp_path / "engine", tmp_path / "steps"
    made = _chain.follow(found.work.chain, found.work.source, out, bench, lambda _t, _s: None, steps=steps)
    links = _chain.links(out)
    assert [link["job"] for link in links] == ["onnx_export", "onnx_clean", "onnx_cast", "tensorrt_build"]
    assert links[0]["made_from"] == "sha256:0" and links[-1]["made_from"] == made.made_from
    assert len({link["made_from"] for link in links}) == 4
    assert sorted(p.name for p in steps.iterdir()) == [
        "1-onnx_from_torch-fp32", "2-onnx_clean-fp32", "3-onnx_cast-fp16",
    ]  # fmt: skip
    script = (out / "reproduce.py").read_text()
    compile(script, "reproduce.py", "exec")
    assert "tensorrt_build" in script and "lib 1.0" in script and str(tmp_path) not in script
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("content", "version", "source", "code", "says"),
    [
        ("made", "1.0", "a", 0, "the same again: 1 files"),
        ("other", "1.0", "a", 1, "not the same: model.onnx"),
        ("other", "2.0", "a", 1, "lib is 2.0 now, and was 1.0"),
        ("other", "1.0", "b", 1, "SOURCE is not what it was made from"),
    ],
)
def test_a_script_makes_it_again_or_says_why_it_is_another(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str,
    version: str,
    source: str,
    code: int,
    says: str,
) -> None:
    now = {"content": "made", "version": "1.0"}

    def run(_environment: str, _job: str, request: Mapping[str, Any], _progress: Progress) -> dict[str, Any]:
        (Path(request["out"]) / "model.onnx").write_text(now["content"])
        return {"versions": {"lib": now["version"]}}

    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    made_from = replace(order("onnx").source, path=str(tmp_path / "a"), digest=digest.of_path(tmp_path / "a"))
    chain = prepare(order("onnx"), Wish(), KIT).work.chain
    bench = Bench(tools=TOOLS, schemes=SCHEMES, run=run)
    _chain.follow(chain, made_from, tmp_path / "out", bench, lambda _t, _s: None)
    now |= {"content": content, "version": version}
    monkeypatch.setattr(environments, "run_worker", run)
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path / source), str(tmp_path / "again")])
    with pytest.raises(SystemExit) as caught:
        exec((tmp_path / "out/reproduce.py").read_text(), {"__name__": "again", "__doc__": ""})
    assert caught.value.code == code
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(("made", "said"), [("tensorrt_engine", True), ("tensorrt_rtx_engine", False)])
def test_an_engine_whose_kernels_were_timed_says_so_where_it_is_another_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: str,
    said: bool,
) -> None:
    times: list[int] = []

    def run(_environment: str, _job: str, request: Mapping[str, Any], _progress: Progress) -> dict[str, Any]:
        times.append(1)
        (Path(request["out"]) / "model.engine").write_text(str(len(times)))
        return {"versions": {"lib": "1.0"}}

    chain = prepare(order(made), Wish(), KIT).work.chain[-1:]
    (tmp_path / "graph").mkdir()
    source = replace(order("onnx").source, path=str(tmp_path / "graph"), digest="")
    bench = Bench(tools=TOOLS, schemes=SCHEMES, run=run)
    _chain.follow(chain, source, tmp_path / "out", bench, lambda _t, _s: None)
    monkeypatch.setattr(environments, "run_worker", run)
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path / "graph"), str(tmp_path / "again")])
    script = (tmp_path / "out/reproduce.py").read_text()
    with pytest.raises(SystemExit):
        exec(script, {"__name__": "again", "__doc__": ""})
    shown = capsys.readouterr().out
    assert "not the same: model.engine" in shown
    assert ("by timing them" in shown, "by timing them" in script.split("import json")[0]) == (said, said)


def test_a_step_that_is_half_kept_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_environment: str, job: str, request: Mapping[str, Any], _progress: Progress) -> dict[str, Any]:
        (Path(request["out"]) / "model.onnx").write_text(job)
        return {}

    def copied(source: Path, target: Path, **_: Any) -> None:
        Path(target).mkdir(exist_ok=True)
        (Path(target) / "model.onnx").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_chain.shutil, "copytree", copied)
    found = prepare(order("tensorrt_rtx_engine"), Wish(), KIT)
    bench, steps = Bench(tools=found.tools, schemes=SCHEMES, run=run), tmp_path / "steps"
    out = tmp_path / "engine"
    with pytest.raises(HostError):
        _chain.follow(found.work.chain, found.work.source, out, bench, lambda _t, _s: None, steps=steps)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_step_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def run(environment: str, job: str, request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
        del environment, progress
        if job == "onnx_cast":
            raise RuntimeError("broken")
        (Path(request["out"]) / "model.onnx").write_text(job)
        return {}

    found = prepare(order("tensorrt_rtx_engine"), Wish(), KIT)
    bench = Bench(tools=found.tools, schemes=SCHEMES, run=run)
    with pytest.raises(RuntimeError):
        _chain.follow(found.work.chain, found.work.source, tmp_path / "engine", bench, lambda _t, _s: None)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_cleared_and_what_another_works_on_is_not(tmp_path: Path) -> None:
    def run(environment: str, job: str, request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
        del environment, progress
        (Path(request["out"]) / "model.onnx").write_text(job)
        return {}

    gone, alive = (unfinished.beside(tmp_path / "out", "between") for _ in range(2))
    for place in (gone, alive):
        (place / "1-onnx_from_torch-fp32").mkdir(parents=True)
    found = prepare(order("onnx"), Wish(), KIT)
    bench = Bench(tools=found.tools, schemes=SCHEMES, run=run)
    with unfinished.held(alive):
        _chain.follow(found.work.chain, found.work.source, tmp_path / "out", bench, lambda _t, _s: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, "out"]


def test_a_chain_that_is_no_chain_has_no_links(tmp_path: Path) -> None:
    assert _chain.links(tmp_path) == []
    (tmp_path / "chain.json").write_text(json.dumps(["no"]))
    assert _chain.links(tmp_path) == []

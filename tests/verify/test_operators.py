"""Layer `operators`: each planted fault is named by its operator, module and step; right graphs pass."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import model_optimizer.workers as workers
from model_optimizer.cli.app import app
from model_optimizer.core import Artifact, Gpu, HostError, ToolError, UsageError, digest, plugins
from model_optimizer.verify.operators import (
    Question,
    engine_at,
    engines,
    verify_engine,
    verify_operators,
)
from model_optimizer.verify.operators.chain import steps
from model_optimizer.verify.operators.limits import EIGHT, EXACT, HALF, of_scheme

HERE = Path(__file__).parent
WORKERS = Path(workers.__file__).parent
SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}


LIGHT = ("right-lm", "rope", "epsilon", "swapped", "mask", "transposed", "tokenizer")
"""These share one export; the others export two more models, and quantize."""


@pytest.fixture(scope="session")
def made(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/ with the originals, out/ with every planted graph and answers.json."""
    root = tmp_path_factory.mktemp("operators")
    models = root / "models"
    models.mkdir()
    for script in (
        [HERE.parent / "workers/make_models.py", models],
        [HERE.parent / "workers/make_vision.py", WORKERS, models],
        [HERE / "plant_operators.py", WORKERS, models, root / "out", *LIGHT],
    ):
        plant(onnx_env_python, *script)
    return root


@pytest.fixture(scope="session")
def heavy(made: Path, onnx_env_python: Path) -> Mapping[str, Any]:
    """The answers to all other faults."""
    out = made / "heavy"
    plant(onnx_env_python, HERE / "plant_operators.py", WORKERS, made / "models", out, "-", *LIGHT)
    return json.loads((out / "answers.json").read_text())


@pytest.fixture(scope="session")
def real(
    made: Path, minilm: Path, onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """The answers to faults in MiniLM with its trained weights."""
    models = tmp_path_factory.mktemp("real")
    (models / "minilm").symlink_to(minilm)
    out = models / "out"
    script = [HERE / "plant_operators.py", WORKERS, models, out, "minilm"]
    plant(onnx_env_python, *script, timeout_s=2000)
    return json.loads((out / "answers.json").read_text())


def plant(python: Path, *script: str | Path, timeout_s: int = 900) -> None:
    done = subprocess.run(
        [python, "-P", *script],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def answers(made: Path) -> Mapping[str, Any]:
    return json.loads((made / "out/answers.json").read_text())


def first(answer: Mapping[str, Any]) -> tuple[str, str, str]:
    """Step, operator and module of the first that is wrong."""
    row = answer["stages"][answer["first"]]
    return row["name"], row["suspects"][0]["operator"], row["suspects"][0]["module"]


@pytest.mark.engine
def test_what_is_right_passes(answers: Mapping[str, Any]) -> None:
    right(answers["right-lm"])


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["right-fp16", "right-bf16", "right-alone", "right-int8", "right-bert", "right-yolo"]
)
def test_what_is_right_passes_in_other_families_and_formats(heavy: Mapping[str, Any], name: str) -> None:
    right(heavy[name])


def right(answer: Mapping[str, Any]) -> None:
    assert answer["first"] is None, answer
    if answer["stages"][0]["scheme"] == "fp32":  # a cast graph without its steps is one stage
        assert answer["stages"][0]["truth"] < EXACT.own
    assert "cut" in answer and answer["cut"] == []


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "step", "operator", "module"),
    [
        ("rope", "export", "Mul", "model.rotary_emb"),
        ("epsilon", "export", "Add", "model.layers.1.input_layernorm"),
        ("swapped", "export", "MatMul", "model.layers.0.self_attn.k_proj"),
        ("mask", "export", "Less", "model"),
        ("transposed", "export", "MatMul", "model.layers.1.self_attn.o_proj"),
    ],
)
def test_every_fault_is_named(
    answers: Mapping[str, Any], name: str, step: str, operator: str, module: str
) -> None:
    assert first(answers[name]) == (step, operator, module)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step", "operator", "module"),
    [
        ("bias", "export", "MatMul", "encoder.layer.1.intermediate.dense"),
        ("pooling", "export", "Gather", ""),
        ("frozen", "export", "Gather", "embeddings.position_embeddings"),
        ("short", "export", "Gather", "embeddings.position_embeddings"),
        ("clean-up", "clean-up", "MatMul", "model.layers.1.self_attn.v_proj"),
        ("overflow", "cast", "MatMul", "model.layers.1.mlp.up_proj"),
        ("weight-scale", "Q/DQ", "DequantizeLinear", "model.layers.0.mlp.up_proj"),
        ("activation-scale", "Q/DQ", "QuantizeLinear", "model.layers.1.self_attn.o_proj"),
        ("yolo-bias", "export", "Conv", "model.22.proto.cv2.bn"),
        ("yolo-transposed", "export", "Conv", "model.4.cv2.bn"),
        ("yolo-overflow", "cast", "Conv", "model.2.cv1.bn"),
        ("yolo-weight-scale", "Q/DQ", "DequantizeLinear", "model.4.cv2.bn"),
        ("yolo-activation-scale", "Q/DQ", "QuantizeLinear", "model.6.cv1.bn"),
        ("lm-frozen", "export", "Min", "model.rotary_emb"),
        ("softmax-axis", "export", "Softmax", "model.layers.0.self_attn"),
        ("no-scale", "export", "Mul", "model.layers.1.self_attn"),
        ("detour", "export", "Cast", "model.layers.1.mlp.down_proj"),
        ("no-residual", "export", "Add", "model.layers.0"),
        ("heads", "export", "MatMul", "model.layers.1.self_attn.v_proj"),
        ("norm-swapped", "export", "LayerNormalization", "encoder.layer.1.output.LayerNorm"),
        ("positions-off", "export", "Gather", "embeddings.position_embeddings"),
        ("gelu", "export", "Gelu", "encoder.layer.1.intermediate.intermediate_act_fn"),
        ("unmasked", "export", "ReduceSum", ""),
        ("yolo-resize", "export", "Resize", "model.13"),
        ("yolo-points", "export", "Add", "model.22"),
        ("yolo-parts", "export", "Concat", "model.4"),
        ("zero-point", "Q/DQ", "DequantizeLinear", "model.layers.1.mlp.gate_proj"),
        ("zero-point-by-one", "Q/DQ", "DequantizeLinear", "model.layers.1.mlp.gate_proj"),
        ("idle-mask", "export", "GreaterOrEqual", ""),
        ("yolo-frozen", "export", "Add", "model.22"),
        ("yolo-faint", "clean-up", "Resize", "model.10"),
        ("infinite", "cast", "MatMul", "model.layers.1.mlp.down_proj"),
        ("half-axis", "cast", "Softmax", "model.layers.0.self_attn"),
        ("half-epsilon", "cast", "LayerNormalization", "encoder.layer.1.output.LayerNorm"),
        ("half-norm-swapped", "cast", "LayerNormalization", "encoder.layer.1.output.LayerNorm"),
        ("half-transposed", "cast", "MatMul", "model.layers.1.self_attn.o_proj"),
        ("brain-transposed", "cast", "MatMul", "model.layers.1.self_attn.o_proj"),
    ],
)
def test_every_other_fault_is_named(
    heavy: Mapping[str, Any], name: str, step: str, operator: str, module: str
) -> None:
    assert first(heavy[name]) == (step, operator, module)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step", "operator", "module"),
    [
        ("minilm-epsilon", "export", "LayerNormalization", "encoder.layer.1.output.LayerNorm"),
        ("minilm-swapped", "export", "MatMul", "encoder.layer.1.attention.self.key"),
        ("minilm-mask", "export", "Slice", ""),
        ("minilm-bias", "export", "MatMul", "encoder.layer.1.intermediate.dense"),
        ("minilm-transposed", "export", "MatMul", "encoder.layer.1.attention.output.dense"),
        ("minilm-pooling", "export", "Gather", ""),
        ("minilm-frozen", "export", "Gather", "embeddings.position_embeddings"),
        ("minilm-overflow", "cast", "MatMul", "encoder.layer.1.intermediate.dense"),
        ("minilm-weight-scale", "Q/DQ", "DequantizeLinear", "encoder.layer.1.attention.self.value"),
        ("minilm-activation-scale", "Q/DQ", "QuantizeLinear", "encoder.layer.1.intermediate.dense"),
    ],
)
def test_every_fault_in_minilm_is_named(
    real: Mapping[str, Any], name: str, step: str, operator: str, module: str
) -> None:
    """An epsilon of 1e-5 for 1e-12 among them, which moves no vector by more than 2e-5 of its length."""
    assert first(real[name]) == (step, operator, module)


@pytest.mark.engine
@pytest.mark.slow
def test_minilm_as_it_is_passes_in_32_and_8_bits(real: Mapping[str, Any]) -> None:
    right(real["minilm-right"])
    right(real["minilm-right-int8"])
    assert real["minilm-tokenizer"]["first"] is None
    assert real["minilm-tokenizer"]["tokenizer"]["different"] == 2


@pytest.mark.engine
@pytest.mark.slow
def test_what_16_bits_round_away_is_no_fault(heavy: Mapping[str, Any]) -> None:
    """The two ways to compute GELU differ by 2e-4, which is what FP16 rounds; in 32 bits it is named."""
    assert heavy["half-gelu"]["first"] is None
    assert first(heavy["gelu"])[1] == "Gelu"


@pytest.mark.engine
@pytest.mark.slow
def test_faults_beyond_a_length_say_from_where(heavy: Mapping[str, Any]) -> None:
    for name in ("frozen", "short"):
        assert heavy[name]["stages"][0]["shortest"] == "3 x 33"
        assert heavy[name]["feeds"][0] == "1 x 7"


@pytest.mark.engine
@pytest.mark.slow
def test_what_answers_do_not_show_is_found(heavy: Mapping[str, Any]) -> None:
    """Sizes beyond the model's own, and places inside of a graph whose answers are right."""
    assert heavy["yolo-frozen"]["stages"][0]["shortest"] == "1 x 3 x 160 x 192"
    assert heavy["yolo-faint"]["stages"][1]["added"] < 2e-6


@pytest.mark.engine
def test_another_tokenizer_is_told_from_another_graph(answers: Mapping[str, Any]) -> None:
    answer = answers["tokenizer"]
    assert answer["first"] is None
    assert answer["tokenizer"] == {"checked": 2, "different": 2, "first": 0}


@pytest.mark.engine
def test_the_search_is_bounded(answers: Mapping[str, Any]) -> None:
    """Few runs and few operators alone, of hundreds of places; memory far below 2 GiB."""
    exact = [a for n, a in answers.items() if n in ("rope", "swapped", "mask", "transposed")]
    assert all(a["runs"] <= 8 and a["alone"] <= 4 for a in exact)
    assert all(a["stages"][0]["looked"] < a["stages"][0]["places"] for a in exact)


@pytest.mark.engine
def test_what_is_cut_out_shows_the_fault_alone(made: Path, onnx_env_python: Path) -> None:
    """The script runs without anything of this product."""
    folder = made / "out/transposed/cut"
    done = subprocess.run(
        [onnx_env_python, "-P", folder / "run.py"], capture_output=True, text=True, check=True
    )
    assert float(done.stdout.split()[1]) > 0.5
    assert json.loads((folder / "about.json").read_text())["stage"] == "export"


@pytest.mark.engine
def test_the_command(made: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    words = ["verify", str(made / "out/swapped/lm"), "--against", str(made / "models/lm")]
    done = CliRunner().invoke(app, [*words, "--layer", "operators", "--cut-out", str(cut), "--json"])
    assert done.exit_code == 1, done.output
    verdict = json.loads(done.stdout)
    assert verdict["because"].startswith(
        "MatMul `node_linear_1` of model.layers.0.self_attn.k_proj is the first"
    )
    assert "nothing says how the candidate was made" in verdict["because"]
    assert (cut / "operator.onnx").is_file() and (cut / "run.py").is_file()


@pytest.mark.engine
def test_weights_that_are_missing_and_another_model(made: Path, tmp_path: Path) -> None:
    graph = made / "out/base/lm"
    words = ["--layer", "operators", "--cut-out", str(tmp_path / "cut"), "--scheme", "fp32"]
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "model.onnx").write_bytes((graph / "model.onnx").read_bytes())
    done = CliRunner().invoke(app, ["verify", str(alone), "--against", str(made / "models/lm"), *words])
    assert "the weights of `model.onnx` are not whole" in str(done.exception)
    done = CliRunner().invoke(app, ["verify", str(graph), "--against", str(made / "models/yolo"), *words])
    assert done.exception is not None and getattr(done.exception, "hint", ())
    assert not (tmp_path / "cut").exists()


# Without any engine.


def artifact(path: Path, form: str = "onnx", scheme: str = "fp32") -> Artifact:
    return Artifact(path=str(path), format=form, scheme=scheme, task="embed", bytes=1, digest="sha256:0")


def link(folder: Path, job: str, scheme: str, made_from: str, before: list[Any]) -> list[Any]:
    """A folder with one link more than `before`."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text(job)
    row = {"tool": job, "job": job, "scheme": scheme, "made_from": made_from}
    (folder / "chain.json").write_text(json.dumps({"schema": "chain/1", "links": [*before, row]}))
    return [*before, row]


def chain(root: Path) -> Path:
    one = link(root / "steps/1", "onnx_export", "fp32", "sha256:0", [])
    two = link(root / "steps/2", "onnx_clean", "fp32", digest.of_path(root / "steps/1"), one)
    link(root / "made", "onnx_qdq", "int8", digest.of_path(root / "steps/2"), two)
    return root / "made"


def test_graphs_between_are_found_by_their_content(tmp_path: Path) -> None:
    made = chain(tmp_path)
    assert [(s.name, s.scheme) for s in steps(made, "int8")] == [
        ("export", "fp32"), ("clean-up", "fp32"), ("Q/DQ", "int8"),
    ]  # fmt: skip
    (tmp_path / "steps/2/model.onnx").write_text("another one")
    assert [s.name for s in steps(made, "int8")] == ["export", "clean-up + Q/DQ"]
    (tmp_path / "steps").rename(tmp_path / "elsewhere.d")
    far = tmp_path / "far/made"
    far.parent.mkdir()
    made.rename(far)
    assert [s.name for s in steps(far, "int8")] == ["export + clean-up + Q/DQ"]
    assert len(steps(far, "int8", tmp_path / "elsewhere.d")) == 2


def test_a_graph_that_says_nothing_is_one_step(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    assert [s.name for s in steps(tmp_path, "fp16")] == ["all steps"]
    (tmp_path / "chain.json").write_text('{"links": 3}')
    assert [s.name for s in steps(tmp_path / "model.onnx", "fp16")] == ["all steps"]


def answer(**changed: Any) -> dict[str, Any]:
    row = {
        "name": "cast", "tool": None, "scheme": "fp16", "truth": 0.3, "added": 1e300, "places": 9, "looked": 4,
        "median_own": 4e-4, "shortest": "3 x 33", "suspects": [],
    }  # fmt: skip
    return {
        "feeds": ["1 x 7", "3 x 33"], "tokenizer": None, "stages": [row], "runtime": {"added": 0.0},
        "first": None, "runs": 3, "alone": 2, **changed,
    }  # fmt: skip


def test_the_verdict_says_which_and_from_where(tmp_path: Path) -> None:
    suspect = {
        "node": "n", "operator": "MatMul", "module": "layers.1.up", "own": 1e300, "total": None,
        "own_limit": 0.005, "because": "FP16 ends at 65504",
    }  # fmt: skip
    asked: list[Mapping[str, Any]] = []

    def run(environment: str, job: str, request: Mapping[str, Any], progress: object) -> Mapping[str, Any]:
        asked.append(request)
        (Path(request["out"]) / "about.json").write_text("{}")
        found = answer(first=0)
        found["stages"][0]["suspects"] = [suspect]
        return found

    question = Question(
        candidate=artifact(tmp_path, scheme="fp16"), reference=artifact(tmp_path), schemes=SCHEMES,
        cut_out=tmp_path / "cut",
    )  # fmt: skip
    verdict = verify_operators(question, run=run, progress=lambda _t, _s: None)
    assert verdict.outcome == "fail" and verdict.because is not None
    assert verdict.because.startswith("MatMul `n` of layers.1.up is the first that is wrong, in step cast")
    assert "inputs shorter than 3 x 33 show nothing" in verdict.because
    assert verdict.comparisons[-1].got is None and verdict.comparisons[-1].because == "FP16 ends at 65504"
    assert (tmp_path / "cut/about.json").is_file()
    assert asked[0]["limits"]["fp16"]["own"] == HALF.own


def test_a_verdict_of_bf16_says_how_it_was_computed(tmp_path: Path) -> None:
    question = Question(candidate=artifact(tmp_path), reference=artifact(tmp_path), schemes=SCHEMES)
    runs = [
        verify_operators(question, run=lambda *_, e=e: answer(emulated=e), progress=lambda _t, _s: None)
        for e in (False, True)
    ]
    assert ["every number rounded" in (v.because or "") for v in runs] == [False, True]


def failing(**found: Any) -> Any:
    """A worker that finds one fault, or that raises what it is given."""

    def run(_environment: str, _job: str, request: Mapping[str, Any], _progress: object) -> Mapping[str, Any]:
        if "error" in found:
            raise found["error"]
        (Path(request["out"]) / "about.json").write_text("{}")
        one = {"node": "n", "operator": "Add", "module": "", "own": 1.0, "total": 1.0, "own_limit": 0.1}
        row = {**answer()["stages"][0], "suspects": [one]}
        return answer(first=0, stages=[row])

    return run


def test_what_lies_at_the_place_of_the_cut_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    place = {"candidate": artifact(tmp_path), "reference": artifact(tmp_path), "schemes": SCHEMES}
    with pytest.raises(UsageError, match="is there already") as caught:
        verify_operators(
            Question(**place, cut_out=other), run=lambda *_: pytest.fail("worked"), progress=lambda *_: None
        )
    assert "--cut-out" in caught.value.hint[0]
    (tmp_path / "file").touch()
    question = Question(**place, cut_out=tmp_path / "file/cut")
    with pytest.raises(HostError, match="cannot be written") as refused:
        verify_operators(question, run=failing(), progress=lambda *_: None)
    assert refused.value.exit_code == 3
    empty = tmp_path / "empty"
    empty.mkdir()
    for _ in range(2):  # the second time its own cut is there
        verify_operators(Question(**place, cut_out=empty), run=failing(), progress=lambda *_: None)
    assert (empty / "about.json").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "other"]


def test_two_that_do_not_belong_together_are_the_users_matter(tmp_path: Path) -> None:
    question = Question(candidate=artifact(tmp_path), reference=artifact(tmp_path), schemes=SCHEMES)
    for reference, kind in (
        ("other-model", UsageError),
        ("shapes-differ", UsageError),
        ("crashed", ToolError),
    ):
        error = ToolError("no", hint=("do",), reference=reference)
        with pytest.raises(kind, match="no") as caught:
            verify_operators(question, run=failing(error=error), progress=lambda *_: None)
        assert type(caught.value) is kind and caught.value.reference == reference


def test_limits_know_the_format() -> None:
    assert of_scheme("fp8", 8) is EIGHT and of_scheme("fp32", 32) is EXACT
    assert of_scheme("bf16", 16) is not HALF


def test_an_engine_needs_a_gpu_and_its_graph(tmp_path: Path) -> None:
    assert not engine_at(tmp_path, gpus=())
    (tmp_path / "model.engine").touch()
    with pytest.raises(HostError, match="this machine has none") as caught:
        engine_at(tmp_path, gpus=())
    assert "--steps" in caught.value.hint[0]
    with pytest.raises(UsageError, match="nothing says how"):
        engines.read(tmp_path, None)
    (tmp_path / "mopt.json").write_text('{"scheme": "fp16", "engine": {"library": "tensorrt_rtx"}}')
    assert engine_at(tmp_path / "model.engine", gpus=[Gpu(name="NVIDIA L4", compute_capability=(8, 9))])
    with pytest.raises(UsageError, match="was built from is not there") as missing:
        engines.read(tmp_path, None)
    assert "--steps" in missing.value.hint[0]


def test_an_engine_of_another_device_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "model.engine").touch()
    facts = {"library": "tensorrt_rtx", "version": "1.7.1.116", "compute_capabilities": ["8.6", "8.9"]}
    (tmp_path / "mopt.json").write_text(json.dumps({"scheme": "fp16", "engine": facts}))
    ada, blackwell, unknown = (Gpu(name="card", compute_capability=c) for c in ((8, 9), (12, 0), None))
    assert engine_at(tmp_path, gpus=[blackwell, ada])
    assert engine_at(tmp_path, gpus=[unknown])
    with pytest.raises(HostError, match=r"compute capability 8\.6, 8\.9") as caught:
        engine_at(tmp_path, gpus=[blackwell])
    assert caught.value.reference == "engine-of-another-device"
    assert "12.0" in caught.value.cause[0]


def test_an_engine_of_another_version_is_the_hosts_fault(tmp_path: Path) -> None:
    """The worker that has the library compares; the verdict is not of an engine built anew."""
    sys_path = str(WORKERS)
    code = "import operators_engine as o; o.require_version(None, '1'); o.require_version('1', '1'); "
    ask = f"import sys; sys.path.insert(0, {sys_path!r}); {code}"
    assert subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0
    other = subprocess.run(
        [sys.executable, "-c", ask + "o.require_version('1.7', '1.8')"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert other.returncode != 0
    assert "Failure" in other.stderr
    folder = engine_folder(tmp_path)
    facts = json.loads((folder / "mopt.json").read_text())
    facts["engine"]["version"] = "1.7.1"
    (folder / "mopt.json").write_text(json.dumps(facts))
    engine, asked = engines.read(folder, None), {}

    def run(_environment: str, job: str, request: Any, _progress: Any) -> dict[str, Any]:
        asked[job] = request
        if job == "operators_compare":
            return answer()
        if job == "operators_wanted":
            return {"size": "2 x 8"}
        raise ToolError("of another version", reference="engine-of-another-version")

    question = Question(
        candidate=artifact(engine.graph),
        reference=artifact(tmp_path),
        schemes=SCHEMES,
        texts=("a",),
    )
    with pytest.raises(HostError, match="of another version"):
        verify_engine(question, engine, run=run, progress=lambda _t, _s: None)
    assert asked["operators_engine"]["version"] == "1.7.1"


def engine_folder(root: Path) -> Path:
    """An engine as `mopt convert --steps` leaves it: the graphs are in another folder."""
    one = link(root / "steps/1", "onnx_export", "fp32", "sha256:0", [])
    link(root / "engine", "tensorrt_build", "fp32", digest.of_path(root / "steps/1"), one)
    (root / "engine/model.onnx").rename(root / "engine/model.engine")
    facts = {"scheme": "fp32", "engine": {"library": "tensorrt_rtx"}}
    (root / "engine/mopt.json").write_text(json.dumps(facts))
    return root / "engine"


def test_the_graph_of_an_engine_is_found_by_its_content(tmp_path: Path) -> None:
    found = engines.read(engine_folder(tmp_path) / "model.engine", None)
    assert (found.graph, found.flavour) == (tmp_path / "steps/1", "rtx")


@pytest.mark.parametrize("wrong", [False, True])
def test_the_engine_is_a_step_behind_its_graph(tmp_path: Path, wrong: bool) -> None:
    bad = {
        "node": "n", "operator": "MatMul", "module": "layers.1.v", "own": 0.5, "total": 0.5, "own_limit": 5e-6,
    }  # fmt: skip
    jobs: list[tuple[str, str]] = []

    def run(environment: str, job: str, request: Mapping[str, Any], progress: object) -> Mapping[str, Any]:
        jobs.append((environment, job))
        if job == "operators_compare":
            return answer()
        if job == "operators_wanted":
            return {"values": 40, "size": "3 x 33"}
        assert Path(request["wanted"]).is_dir() and request["flavour"] == "rtx"
        if wrong:
            (Path(request["out"]) / "about.json").write_text("{}")
        row = {**answer()["stages"][0], "name": "engine", "added": 0.3 if wrong else 1e-7, "shortest": None}
        return {"row": {**row, "suspects": [bad] if wrong else []}, "engines": 3}

    engine = engines.read(engine_folder(tmp_path), None)
    question = Question(
        candidate=artifact(engine.graph),
        reference=artifact(tmp_path),
        schemes=SCHEMES,
        cut_out=tmp_path / "cut",
    )
    verdict = verify_engine(question, engine, run=run, progress=lambda _t, _s: None)
    assert [job for _, job in jobs] == ["operators_compare", "operators_wanted", "operators_engine"]
    assert jobs[-1][0] == "tensorrt_rtx"
    assert verdict.outcome == ("fail" if wrong else "pass")
    assert [c.metric for c in verdict.comparisons if c.metric == "step_engine"] == ["step_engine"]
    assert (tmp_path / "cut/about.json").is_file() == wrong
    assert verdict.because is not None
    assert ("MatMul `n` of layers.1.v is the first that is wrong, in step engine" in verdict.because) == wrong


def test_an_engine_of_a_wrong_graph_is_not_looked_into(tmp_path: Path) -> None:
    suspect = {
        "node": "n", "operator": "MatMul", "module": "up", "own": 0.5, "total": 0.5, "own_limit": 5e-6,
    }  # fmt: skip

    def run(environment: str, job: str, request: Mapping[str, Any], progress: object) -> Mapping[str, Any]:
        assert job == "operators_compare"
        found = answer(first=0)
        found["stages"][0]["suspects"] = [suspect]
        return found

    engine = engines.read(engine_folder(tmp_path), None)
    question = Question(candidate=artifact(engine.graph), reference=artifact(tmp_path), schemes=SCHEMES)
    verdict = verify_engine(question, engine, run=run, progress=lambda _t, _s: None)
    assert verdict.outcome == "fail" and "was not looked into" in (verdict.because or "")


@pytest.mark.engine
def test_values_inside_an_engine_name_the_operator(made: Path, onnx_env_python: Path, tmp_path: Path) -> None:
    """With a stand-in for TensorRT that computes with ONNX Runtime: no GPU is here."""
    graph = made / "out/base/lm/model.onnx"
    fakes = HERE.parent / "workers"
    plant(
        onnx_env_python,
        HERE / "look_into_engine.py",
        WORKERS,
        fakes,
        made / "models/lm",
        graph,
        tmp_path / "out",
    )
    found = json.loads((tmp_path / "out/answers.json").read_text())
    assert found["right"]["row"]["suspects"] == [] and found["right"]["engines"] == 1
    (bad,) = found["node"]["row"]["suspects"]
    assert (bad["operator"], bad["module"]) == ("MatMul", "model.model.layers.1.self_attn.v_proj")
    assert bad["own"] == pytest.approx(0.5)
    assert found["node"]["row"]["looked"] < found["node"]["row"]["places"]
    assert "fusion" in found["fusion"]["row"]["suspects"][0]["because"]
    assert (tmp_path / "out/node/operator.onnx").is_file()
    assert found["marks"] > 10


def test_what_has_no_operators_to_look_at(tmp_path: Path) -> None:
    question = Question(candidate=artifact(tmp_path, "onnx_genai"), reference=artifact(tmp_path), schemes={})
    with pytest.raises(UsageError, match="onnx_genai"):
        verify_operators(question, run=lambda *_: {}, progress=lambda _t, _s: None)
    done = CliRunner().invoke(app, ["verify", "http://127.0.0.1:1", "--against", "x", "--layer", "operators"])
    assert isinstance(done.exception, UsageError)

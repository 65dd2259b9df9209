"""What a user points at."""

import dataclasses
import json
from pathlib import Path

import pytest

from model_optimizer.core import (
    Artifact,
    Host,
    MoptError,
    Plan,
    Run,
    Setting,
    Slo,
    UsageError,
    Verdict,
    Workload,
    codec,
    plugins,
)
from model_optimizer.core.digest import of_path
from model_optimizer.serve import Order, Wish, resolve
from model_optimizer.system.runs import Outcome, RunFolder

ENGINES = plugins.load_all("model_optimizer.engines")
SCHEMES = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "torch_dtype": "float32",
}


def find(target: Path | str, wish: Wish | None = None) -> Order:
    return resolve(str(target), wish or Wish(), Host(), engines=ENGINES, schemes=SCHEMES)


def onnx_folder(place: Path, *, facts: dict[str, str] | None) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.onnx").write_bytes(b"graph")
    (place / "config.json").write_text(json.dumps(BERT))
    if facts is not None:
        (place / "mopt.json").write_text(json.dumps(facts))
    return place


def a_plan(scheme: str = "int8", path: tuple[str, ...] = ("onnx_from_torch",)) -> Plan:
    return Plan(
        model="bert",
        checkpoint="/models/bert",
        workload=Workload(task="embed"),
        slo=Slo(),
        engine="onnxruntime",
        environment="onnx",
        scheme=scheme,
        format="onnx",
        path=path,
        settings=(Setting(name="max_batch_size", value="8", because="so", source="derived"),),
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A finished run whose winner is onnxruntime-int8."""
    folder = RunFolder(tmp_path / "a-run")
    folder.path.mkdir()
    noun = Run(command=("mopt",), version="0", created="now", model="bert", winner="onnxruntime-int8")
    folder.write(noun, "run")
    folder.write(a_plan(), "plan")
    for name in ("onnxruntime-int8", "onnxruntime-int4_rtn"):
        made = onnx_folder(folder.path / "artifacts" / name, facts={})
        folder.write(a_plan(name.partition("-")[2]), f"candidates/{name}/plan")
        artifact = Artifact(
            path=str(made), format="onnx", scheme="int8", task="embed", bytes=1, digest=of_path(made)
        )
        folder.write_artifact(artifact, name)
        folder.write(Outcome(fate="served"), f"candidates/{name}/outcome")
    return folder


def test_an_artefact_that_was_changed_is_not_served(run: RunFolder) -> None:
    (run.path / "artifacts/onnxruntime-int8/model.onnx").write_bytes(b"something else")
    with pytest.raises(MoptError, match="is not the one that was verified"):
        find(run.path)


def test_a_run_is_its_winner(run: RunFolder) -> None:
    found = find(run.path)
    assert found.plan == a_plan()
    assert found.artifact.path == str(run.path / "artifacts" / "onnxruntime-int8")


def test_the_plan_of_a_run_is_its_winner(run: RunFolder) -> None:
    assert find(run.path / "plan.json") == find(run.path)


def test_a_candidates_plan_is_that_candidate(run: RunFolder) -> None:
    found = find(run.path / "candidates" / "onnxruntime-int4_rtn" / "plan.json")
    assert (found.plan.scheme, Path(found.artifact.path).name) == ("int4_rtn", "onnxruntime-int4_rtn")


def test_what_failed_verification_is_not_served(run: RunFolder) -> None:
    name = "onnxruntime-int4_rtn"
    verdict = Verdict(layer="model", subject=name, outcome="fail", because="cosine 0.7, 0.94 was wanted")
    run.write(verdict, f"candidates/{name}/verdict-model")
    with pytest.raises(MoptError, match="failed verification and is not served") as caught:
        find(run.path / "candidates" / name / "plan.json")
    assert caught.value.exit_code == 1
    assert caught.value.cause == ("cosine 0.7, 0.94 was wanted",)


def test_a_run_without_a_winner_says_why(run: RunFolder) -> None:
    noun = run.read(Run, "run")
    assert noun
    run.write(dataclasses.replace(noun, winner=None, because="no candidate met the SLO"), "run")
    with pytest.raises(UsageError, match="chose nothing to serve") as caught:
        find(run.path)
    assert caught.value.cause == ("no candidate met the SLO",)


def test_an_artefact_that_is_gone_is_said(run: RunFolder) -> None:
    import shutil

    shutil.rmtree(run.path / "artifacts" / "onnxruntime-int8")
    with pytest.raises(UsageError, match="the artefact of `onnxruntime-int8` is not in the run"):
        find(run.path)


def test_a_plan_keeps_its_engine_and_takes_settings(run: RunFolder) -> None:
    found = find(run.path, Wish(settings={"max_num_seqs": "2", "host": "127.0.0.1"}))
    assert found.plan.setting("max_batch_size") == "2"
    with pytest.raises(UsageError, match="has decided engine and scheme"):
        find(run.path, Wish(scheme="fp32"))


def test_a_plan_whose_artefact_is_elsewhere_says_how_to_make_it(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(codec.dumps(a_plan()))
    with pytest.raises(UsageError, match="plans an artefact that is not beside it") as caught:
        find(tmp_path / "plan.json")
    assert caught.value.cause == ("it is made by onnx_from_torch",)


def test_an_onnx_folder_says_what_it_is(tmp_path: Path) -> None:
    found = find(onnx_folder(tmp_path / "a", facts={"task": "embed", "scheme": "int8"}))
    assert (found.plan.engine, found.plan.scheme, found.artifact.format) == ("onnxruntime", "int8", "onnx")


def test_a_folder_that_says_nothing_needs_a_scheme(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path / "a", facts=None)
    with pytest.raises(UsageError, match="nothing says in which number format"):
        find(folder)
    assert find(folder, Wish(scheme="int4_rtn")).plan.scheme == "int4_rtn"
    with pytest.raises(UsageError, match="there is no scheme `int3`"):
        find(folder, Wish(scheme="int3"))


def test_facts_that_are_not_json_are_said(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path / "a", facts={})
    (folder / "mopt.json").write_text("{")
    with pytest.raises(UsageError, match=r"mopt\.json` cannot be read"):
        find(folder)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        find("./nowhere")


# -- names of settings


TINY = Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3"


@pytest.mark.parametrize(
    ("engine", "option", "becomes"),
    [
        ("vllm_cpu", "max_num_seqs", "max_num_seqs"),
        ("vllm_cpu", "max-num-batched-tokens", "max_num_batched_tokens"),
        ("pytorch", "max_num_seqs", "max_batch_size"),
    ],
)
def test_an_option_reaches_the_engine_under_its_own_name(engine: str, option: str, becomes: str) -> None:
    found = find(TINY, Wish(engine=engine, settings={option: "3"}))
    assert found.plan.setting(becomes) == "3"


def test_options_of_a_plan_for_vllm_reach_its_command_line(tmp_path: Path) -> None:
    """With underscores they would be settings that nobody reads."""
    folder = TINY
    plan = dataclasses.replace(
        a_plan(), engine="vllm", engine_version="0.25.1", environment="vllm", checkpoint=str(folder),
        scheme="bf16", format="safetensors", path=(), workload=Workload(task="generate"), settings=(),
    )  # fmt: skip
    (tmp_path / "plan.json").write_text(codec.dumps(plan))
    wish = Wish(settings={"max_model_len": "512", "enforce_eager": "1", "host": "0.0.0.0"})
    found = find(tmp_path / "plan.json", wish)
    words = ENGINES["vllm"].launch(found.plan, 8000).arguments
    assert words[words.index("--max-model-len") + 1] == "512"
    assert words[words.index("--host") + 1] == "0.0.0.0"
    assert "--enforce-eager" in words


def test_a_setting_that_the_engine_is_never_told_is_refused() -> None:
    with pytest.raises(UsageError, match="`vllm_cpu` has no setting `max_model_length`") as caught:
        find(TINY, Wish(engine="vllm_cpu", settings={"max_model_length": "512"}))
    assert caught.value.hint[0] == "did you mean `max_model_len`?"


def test_the_kv_cache_of_vllm_on_a_cpu_follows_the_context() -> None:
    small = find(TINY, Wish(engine="vllm_cpu"))
    long = find(TINY, Wish(engine="vllm_cpu", settings={"max_model_len": "8192"}))
    said = {"max_model_len": "8192", "kv_cache_memory_bytes": "99999999"}
    fixed = find(TINY, Wish(engine="vllm_cpu", settings=said))
    bytes_of = [int(o.plan.setting("kv_cache_memory_bytes") or 0) for o in (small, long, fixed)]
    assert bytes_of[1] >= 3 * bytes_of[0]
    assert bytes_of[2] == 99_999_999
    (setting,) = (s for s in long.plan.settings if s.name == "kv_cache_memory_bytes")
    assert "8320 tokens" in setting.because


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUX" + bytes(64))
    with pytest.raises(UsageError, match=r"model\.gguf"):
        find(tmp_path / "model.gguf")


def test_random_weights_need_a_shape_alone(tmp_path: Path) -> None:
    folder = tmp_path / "shape"
    folder.mkdir()
    (folder / "config.json").write_text((TINY / "config.json").read_text())
    plan = dataclasses.replace(
        a_plan(), engine="vllm", engine_version="0.25.1", environment="vllm", checkpoint=str(folder),
        scheme="bf16", format="safetensors", path=(), workload=Workload(task="generate"), settings=(),
    )  # fmt: skip
    (tmp_path / "plan.json").write_text(codec.dumps(plan))
    found = find(tmp_path / "plan.json", Wish(settings={"load_format": "dummy"}))
    assert found.artifact.digest.startswith("random weights, ")
    words = ENGINES["vllm"].launch(found.plan, 8000).arguments
    assert words[words.index("--load-format") + 1] == "dummy"
    with pytest.raises(UsageError):
        find(tmp_path / "plan.json")
    (folder / "config.json").unlink()
    with pytest.raises(UsageError, match=r"no folder with a config\.json"):
        find(tmp_path / "plan.json", Wish(settings={"load-format": "dummy"}))

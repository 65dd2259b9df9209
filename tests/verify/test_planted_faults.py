"""Real engines: a right candidate passes, each planted fault fails, and the numbers say which kind it is."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import Artifact, Comparison, ToolError, UsageError, Verdict, digest, plugins
from model_optimizer.system import environments
from model_optimizer.verify import verify_model

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
TEXTS = HERE.parents[1] / "src" / "model_optimizer" / "verify" / "data" / "english.jsonl"
TASKS = {"lm": "generate", "bert": "embed", "cross": "rerank"}
FEW = 40
"""Texts of the built-in set: enough for the gates of 0.999, and quick."""

Compare = Callable[[str], Verdict]


@pytest.fixture(scope="session")
def models(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that make_models.py fills."""
    out = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [onnx_env_python, "-P", HERE / "make_models.py", out, TEXTS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "HOME": str(out)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="session")
def compare(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """The verdict on one candidate; the references run once for all of them."""
    scratch = tmp_path_factory.mktemp("scratch")

    def run(name: str) -> Verdict:
        kind, _, rest = name.partition("-")
        scheme = rest if rest in ("int8", "fp16") else "fp32"
        gate = plugins.load("model_optimizer.schemes", scheme).SCHEME.gate
        candidate = artifact(models / name, "onnx_genai" if kind == "lm" else "onnx", scheme, TASKS[kind])
        reference = artifact(models / kind, "safetensors", "fp32", TASKS[kind])
        return verify_model(
            candidate,
            reference,
            gate,
            run=environments.run_worker,
            scratch=scratch,
            progress=lambda _text, _share: None,
            max_texts=FEW if kind == "lm" else 250,
        )

    return run


def artifact(path: Path, form: str, scheme: str, task: str) -> Artifact:
    return Artifact(
        path=str(path), format=form, scheme=scheme, task=task, bytes=0, digest=digest.of_path(path)
    )


def by_metric(verdict: Verdict) -> dict[str, Comparison]:
    return {c.metric: c for c in verdict.comparisons}


@pytest.mark.parametrize("name", ["lm-same", "lm-int8", "bert-same", "bert-int8", "cross-same"])
def test_a_right_candidate_passes(compare: Compare, name: str) -> None:
    verdict = compare(name)
    assert verdict.outcome == "pass", verdict.because


def test_the_same_language_model_differs_by_rounding_alone(compare: Compare) -> None:
    found = by_metric(compare("lm-same"))
    assert found["recovery"].got == pytest.approx(1, abs=1e-6)
    assert found["top1"].got == 1
    assert (found["top1"].samples or 0) > 4000
    assert found["kl"].got == pytest.approx(0, abs=1e-8)
    assert (found["logits_ulp"].got or 0) < 100
    assert found["token_ids"].outcome == "pass"


def test_the_same_model_goes_on_alike_with_its_cache_and_another_does_not(
    models: Path, tmp_path: Path
) -> None:
    """The graph reads one token at a time here; a wrong rotation parts within a few tokens."""
    gate = plugins.load("model_optimizer.schemes", "fp32").SCHEME.gate

    def run(name: str) -> Comparison:
        verdict = verify_model(
            artifact(models / name, "onnx_genai", "fp32", "generate"),
            artifact(models / "lm", "safetensors", "fp32", "generate"),
            gate,
            run=environments.run_worker,
            scratch=tmp_path,
            progress=lambda _text, _share: None,
            max_texts=FEW,
            free_tokens=16,
        )
        return by_metric(verdict)["same_to_end"]

    right, wrong = run("lm-same"), run("lm-rope")
    assert right.got == 1
    assert (right.samples or 0) >= FEW // 2
    assert (wrong.got or 0) < 0.5
    assert "the earliest at token" in (wrong.where or "")


def test_eight_bits_are_measured_and_not_mistaken_for_a_fault(compare: Compare) -> None:
    found = by_metric(compare("lm-int8"))
    assert 0.96 < (found["top1"].got or 0) < 1
    assert 0 < (found["kl"].got or 0) < 0.01
    assert found["logits_ulp"].wanted == "reported"


def test_half_precision_is_judged_in_its_own_units(compare: Compare) -> None:
    """Off by more than float32's limit, within float16's."""
    found = by_metric(compare("bert-fp16"))
    drift = found["vectors_ulp"]
    assert drift.outcome == "pass"
    assert (drift.got or 0) * 2**13 > 1024
    assert drift.where is not None
    assert "float16" in drift.where
    assert found["cosine"].outcome == "pass"


@pytest.mark.parametrize("fault", ["transposed", "doubled", "heads", "rope"])
def test_a_fault_in_a_language_model_fails(compare: Compare, fault: str) -> None:
    verdict = compare(f"lm-{fault}")
    found = by_metric(verdict)
    assert verdict.outcome == "fail"
    assert (found["top1"].interval or (0, 1))[1] < 0.9
    assert found["logits_ulp"].because == "more than rounding in float32 explains"


@pytest.mark.parametrize("fault", ["pooling", "mask", "doubled"])
def test_a_fault_in_an_embedding_model_fails(compare: Compare, fault: str) -> None:
    """`mask` is right for every text alone: only padding in a batch shows it."""
    verdict = compare(f"bert-{fault}")
    found = by_metric(verdict)
    assert verdict.outcome == found["cosine"].outcome == found["rank"].outcome == "fail"


def test_lost_token_types_fail_a_cross_encoder(compare: Compare) -> None:
    verdict = compare("cross-types")
    assert verdict.outcome == "fail"
    assert by_metric(verdict)["score_order"].outcome == "fail"


def test_one_weight_that_is_not_a_number_fails_and_says_where(compare: Compare) -> None:
    verdict = compare("lm-nan")
    assert verdict.outcome == "fail"
    (broken,) = [c for c in verdict.comparisons if c.metric == "finite"]
    assert broken.where == "candidate, text 1, position 1"
    assert {c.metric for c in verdict.comparisons} == {"token_ids", "finite"}


def test_another_tokenizer_fails_though_the_weights_are_right(compare: Compare) -> None:
    verdict = compare("lm-tokenizer")
    found = by_metric(verdict)
    assert verdict.outcome == found["token_ids"].outcome == "fail"
    assert found["top1"].outcome == "pass"


def test_a_checkpoint_that_lacks_a_tensor_is_no_reference(models: Path, tmp_path: Path) -> None:
    """The library would fill it with random numbers and only warn."""
    with pytest.raises(UsageError) as caught:
        run_torch(models / "lm-incomplete", tmp_path)
    assert caught.value.message == "the checkpoint lacks 1 weight of its architecture"
    assert caught.value.cause == ("model.layers.0.mlp.up_proj.weight",)
    assert [p.name for p in tmp_path.iterdir()] == ["samples.jsonl"]


def test_code_that_comes_with_a_checkpoint_is_not_run(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "remote"
    folder.mkdir()
    for path in (models / "lm").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "evil"
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'was-here')!r}, 'w')\n")
    with pytest.raises(UsageError) as caught:
        run_torch(folder, tmp_path)
    assert caught.value.reference == "remote-code"
    assert not (tmp_path / "was-here").exists()


def test_pickled_weights_are_not_opened(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((models / "lm" / name).read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'touch was-here'\ntR.")
    with pytest.raises(UsageError) as caught:
        run_torch(folder, tmp_path)
    assert caught.value.reference == "no-weights"
    assert not Path("was-here").exists()


def test_weights_that_are_cut_short_are_named(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "short"
    folder.mkdir()
    for path in (models / "lm").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UsageError, match="cut short"):
        run_torch(folder, tmp_path)


@pytest.mark.parametrize(
    ("change", "reference"),
    [
        (lambda f: (f / "model.onnx.data").unlink(), "onnx-unreadable"),
        (lambda f: (f / "model.onnx").write_bytes(b"not a graph"), "onnx-unreadable"),
        (lambda f: (f / "model.onnx").unlink(), "no-onnx-file"),
    ],
)
def test_a_candidate_that_cannot_be_loaded_is_named(
    models: Path, compare: Compare, tmp_path: Path, change: Callable[[Path], object], reference: str
) -> None:
    compare("lm-same")
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in (models / "lm-same").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(folder)
    with pytest.raises(ToolError) as caught:
        run_onnx(folder, models, tmp_path)
    assert caught.value.reference == reference
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_bert_is_no_language_model(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        run_onnx(models / "bert-same", models, tmp_path)
    assert caught.value.reference == "no-output"
    assert "sentence_embedding" in caught.value.cause[0]


def test_the_command(models: Path, tmp_path: Path) -> None:
    """One call from the command line, with texts of one's own, the verdict on stdout and in a file."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(f'{{"prompt": "{"word " * 60}number {n}"}}\n' for n in range(12)))
    words = ["verify", str(models / "lm-doubled"), "--against", str(models / "lm"), "--scheme", "fp32"]
    words += ["--texts", str(texts), "--json", "--out", str(tmp_path / "verdict.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    verdict = json.loads(done.stdout)
    assert (verdict["schema"], verdict["outcome"]) == ("verdict/1", "fail")
    assert json.loads((tmp_path / "verdict.json").read_text()) == verdict


def run_torch(model: Path, place: Path) -> None:
    """The reference's worker on one text."""
    run_job("outputs_torch", model, place, at=None)


def run_onnx(model: Path, models: Path, place: Path) -> None:
    """The candidate's worker; the reference's outputs are made by the reference's."""
    wanted = models / "one-text.safetensors"
    if not wanted.exists():
        run_job("outputs_torch", models / "lm", place, at=None, out=wanted)
    run_job("outputs_onnx", model, place, at=wanted)


def run_job(job: str, model: Path, place: Path, *, at: Path | None, out: Path | None = None) -> None:
    samples = place / "samples.jsonl"
    samples.write_text('{"text": "The ferry left the harbour at six, as it had every morning."}\n')
    request = {
        "model": str(model),
        "task": "generate",
        "samples": str(samples),
        "out": str(out or place / "out.safetensors"),
        "at": str(at) if at else None,
        "top_k": 10,
        "max_tokens": 64,
    }
    environments.run_worker("onnx", job, request, lambda _text, _share: None)

"""`mopt verify`: screen, exit codes, and what is said to wrong requests."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer import api
from model_optimizer.cli.app import app
from model_optimizer.cli.render_verify import MEANING, verdict_text
from model_optimizer.core import Artifact, Comparison, Run, UsageError, Verdict, codec
from model_optimizer.core.verdict import Outcome
from model_optimizer.system import environments, runs
from model_optimizer.verify import limits, subject
from model_optimizer.verify.model import verify_model

from . import test_model

VERDICT = Verdict(
    layer="model",
    subject="out/int4",
    reference="models/tiny",
    outcome="undecided",
    because="168 texts of the built-in set; top1 lies between 0.8713 and 0.8954, wanted >= 0.88: about "
    "90 more would decide",
    more_samples=90,
    comparisons=(
        Comparison(
            metric="recovery",
            got=0.9821,
            wanted=">= 0.94",
            outcome="pass",
            where="perplexity 21.3 became 21.69",
            samples=15234,
            interval=(0.9784, 0.9858),
        ),
        Comparison(
            metric="top1",
            got=0.8837,
            wanted=">= 0.88",
            outcome="undecided",
            where="1694 of 14568 clear positions differ, most in text 31 (29)",
            samples=14568,
            interval=(0.8713, 0.8954),
        ),
        Comparison(
            metric="top1_near_ties",
            got=0.5121,
            wanted="reported",
            outcome="pass",
            where="positions whose two best tokens are within 0.05 nats in the reference",
            samples=666,
            interval=(0.4742, 0.5499),
        ),
    ),
)


def test_the_screen() -> None:
    assert verdict_text(VERDICT) == snapshot("""\
UNDECIDED: layer model, 168 texts of the built-in set; top1 lies between 0.8713 and 0.8954, wanted >= 0.88: about 90 more would decide
candidate: out/int4
reference: models/tiny (PyTorch, float32)

metric             got  95 % interval     wanted         samples  what it is
--------------  ------  ----------------  -------  ----  -------  -----------------------------------------------
recovery        0.9821  0.9784 to 0.9858  >= 0.94  pass   15,234  perplexity of the reference / of the candidate
top1            0.8837  0.8713 to 0.8954  >= 0.88  ?      14,568  same most likely token, near-ties apart
top1_near_ties  0.5121  0.4742 to 0.5499  -                  666  the same where the reference hardly prefers one

recovery: perplexity 21.3 became 21.69
top1: 1694 of 14568 clear positions differ, most in text 31 (29)
hint: about 90 more texts would decide; pass them with --texts FILE
""")


def test_every_metric_is_explained(tmp_path: Path) -> None:
    """A name that a comparison carries and the screen does not know would stand there unexplained."""
    source = (Path(limits.__file__).parent).rglob("*.py")
    named = {word for path in source for word in MEANING if f'"{word}"' in path.read_text()}
    assert named == set(MEANING)


@pytest.mark.parametrize(
    ("outcome", "strict", "code"),
    [
        ("pass", False, 0),
        ("pass", True, 0),
        ("undecided", False, 0),
        ("undecided", True, 1),
        ("fail", False, 1),
        ("fail", True, 1),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, outcome: Outcome, strict: bool, code: int) -> None:
    verdict = dataclasses.replace(VERDICT, outcome=outcome)
    monkeypatch.setattr(api, "verify", lambda *_, **__: verdict)
    done = CliRunner().invoke(
        app, ["verify", "x", "--against", "r", "--json", *(["--strict"] if strict else [])]
    )
    assert done.exit_code == code
    assert codec.loads(done.stdout, Verdict) == verdict


def refused(*words: str) -> UsageError:
    done = CliRunner().invoke(app, ["verify", *words])
    assert isinstance(done.exception, UsageError)
    return done.exception


def test_wrong_requests(tmp_path: Path) -> None:
    assert "layers today: " in refused("x", "--against", "r", "--layer", "none").hint[0]
    assert "--against" in refused(str(tmp_path)).hint[0]
    assert "cannot be read" in refused("x", "--against", "r", "--texts", str(tmp_path / "none")).message
    assert "is not a run" in refused("x", "--run", str(tmp_path)).message


def test_a_candidate_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run folder knows where both artefacts are, and keeps the verdict and the reference's outputs."""
    folder = runs.create(tmp_path, "tiny")
    folder.write(Run(command=(), version="0", created="now", model="tiny"), "run")
    for name, artifact in (("reference", test_model.REFERENCE), ("onnx-int8", test_model.CANDIDATE)):
        folder.write_artifact(dataclasses.replace(artifact, path=str(tmp_path)), name)
    workers = test_model.Models()

    def run_worker(name: str, job: str, request: Mapping[str, Any], progress: Any) -> Mapping[str, Any]:
        return workers(name, job, request, progress)

    monkeypatch.setattr(environments, "run_worker", run_worker)
    done = CliRunner().invoke(app, ["verify", "onnx-int8", "--run", str(folder.path), "--json"])
    assert done.exit_code == 0, done.output
    verdict = json.loads(done.stdout)
    assert (verdict["subject"], verdict["reference"], verdict["outcome"]) == (
        "onnx-int8",
        "reference",
        "pass",
    )
    kept = folder.read(Verdict, "candidates/onnx-int8/verdict-model")
    assert kept == codec.loads(done.stdout, Verdict)
    assert any((folder.path / "verify").glob("reference-*.safetensors"))
    assert "its candidates: reference, onnx-int8" in refused("int3", "--run", str(folder.path)).hint


def make(path: Path, *names: str, facts: object = None) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x" * 10)
    if facts is not None:
        (path / "mopt.json").write_text(json.dumps(facts))
    return path


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    facts = {"schema": "onnx_folder/1", "task": "rerank", "scheme": "int8", "labels": 1}
    folder = make(tmp_path / "a", "model.onnx", facts=facts)
    found = subject.read(folder, task="embed")
    assert found is not None
    assert (found.format, found.task, found.scheme) == ("onnx", "rerank", "int8")
    assert found.bytes == 10 + (folder / "mopt.json").stat().st_size
    assert found.digest.startswith("sha256:")
    named = subject.read(folder, task="embed", scheme="fp8")
    assert named is not None
    assert named.scheme == "fp8"


def test_folders_without_facts(tmp_path: Path) -> None:
    genai = subject.read(
        make(tmp_path / "g", "model.onnx", "genai_config.json"), task="generate", scheme="int4_rtn"
    )
    assert genai is not None
    assert (genai.format, genai.task) == ("onnx_genai", "generate")
    file = make(tmp_path / "f", "encoder.onnx") / "encoder.onnx"
    alone = subject.read(file, task="embed", scheme="fp32")
    assert alone is not None
    assert (alone.path, alone.format, alone.task) == (str(file), "onnx", "embed")
    assert subject.read(make(tmp_path / "c", "model.safetensors"), task="embed") is None


@pytest.mark.parametrize(
    ("names", "facts", "message"),
    [
        ((), None, "holds no model"),
        (("model.gguf",), None, "holds no model"),
        (("model.onnx",), None, "in which number format"),
        (("model.onnx",), {"task": "dance"}, "cannot be read"),
        (("model.onnx",), [1], "cannot be read"),
    ],
)
def test_folders_that_are_no_candidate(
    tmp_path: Path, names: tuple[str, ...], facts: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        subject.read(make(tmp_path / "x", *names, facts=facts), task="embed")
    assert caught.value.hint


def test_a_checkpoint_can_be_a_candidate(tmp_path: Path) -> None:
    """Another person's fine-tune, or a checkpoint that was written anew: PyTorch runs both."""
    jobs: list[str] = []

    class Both(test_model.Models):
        def __call__(self, environment: str, job: str, request: Mapping[str, Any], progress: Any) -> Any:
            jobs.append(job)
            return super().__call__(
                environment, "outputs_onnx" if request["at"] else "outputs_torch", request, progress
            )

    candidate: Artifact = dataclasses.replace(test_model.CANDIDATE, format="safetensors")
    verdict = verify_model(
        candidate,
        test_model.REFERENCE,
        test_model.GATE,
        run=Both(),
        scratch=tmp_path,
        progress=test_model.silent,
        texts=test_model.TEXTS,
    )
    assert verdict.outcome == "pass"
    assert jobs == ["outputs_torch", "outputs_torch"]

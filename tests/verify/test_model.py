"""The layer as a whole, with workers that are replaced by functions: rounds, cache, verdict."""

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import Artifact, Gate, Progress, UsageError, plugins
from model_optimizer.verify.limits import LOOKS
from model_optimizer.verify.model import READERS, verify_model
from model_optimizer.verify.texts import Sample, Texts

from . import made

GATE = Gate(recovery=0.98, top1=0.95, cosine=0.99, rank=0.95, source="test")
REFERENCE = Artifact(path="/r", format="safetensors", scheme="fp32", task="embed", bytes=1, digest="sha256:r")
CANDIDATE = Artifact(path="/c", format="onnx", scheme="int8", task="embed", bytes=1, digest="sha256:c")
TEXTS = Texts(source="some texts", samples=tuple(Sample(text=f"text {n}") for n in range(900)))


class Models:
    """Stands in for both workers: a vector a text.

    The candidate's whole space is turned by `turned` (radians), which keeps every neighbour, and a share
    `wrong` of its vectors points the other way.
    """

    def __init__(self, wrong: float = 0.0, turned: float = 0.0) -> None:
        self.wrong = wrong
        self.turned = turned
        self.calls: list[tuple[str, int]] = []

    def __call__(
        self, environment: str, job: str, request: Mapping[str, Any], progress: Progress
    ) -> Mapping[str, Any]:
        samples = [json.loads(line) for line in Path(request["samples"]).read_text().splitlines()]
        self.calls.append((job, len(samples)))
        assert environment == "onnx"
        assert (request["at"] is None) == (job == "outputs_torch")
        rows: list[list[float]] = []
        for sample in samples:
            dice = random.Random(sample["text"])
            row = [dice.gauss(0, 1) for _ in range(6)]
            if job == "outputs_onnx":
                a, b, *rest = row
                sine, cosine = math.sin(self.turned), math.cos(self.turned)
                row = [a * cosine - b * sine, a * sine + b * cosine, *rest]
                row = [-x for x in row] if dice.random() < self.wrong else row
            rows.append(row)
        progress("running", 1.0)
        made.vectors(Path(request["out"]), rows, quantized=job == "outputs_onnx")
        return {"texts": len(rows)}


def silent(_text: str, _share: float | None) -> None: ...


def check(models: Models, scratch: Path, **options: Any):
    options = {"texts": TEXTS, "gate": GATE, "candidate": CANDIDATE, "reference": REFERENCE, **options}
    return verify_model(
        options.pop("candidate"),
        options.pop("reference"),
        options.pop("gate"),
        run=models,
        scratch=scratch,
        progress=silent,
        **options,
    )


def test_an_equal_model_passes_on_the_first_texts(tmp_path: Path) -> None:
    models = Models()
    verdict = check(models, tmp_path)
    assert (verdict.layer, verdict.outcome, verdict.more_samples) == ("model", "pass", None)
    assert (verdict.subject, verdict.reference) == ("/c", "/r")
    assert verdict.because == "250 texts of some texts; every limit is reached"
    assert models.calls == [("outputs_torch", 250), ("outputs_onnx", 250)]


def test_a_broken_model_fails_and_says_why(tmp_path: Path) -> None:
    verdict = check(Models(wrong=0.5), tmp_path)
    assert verdict.outcome == "fail"
    assert verdict.because is not None
    assert "cosine is " in verdict.because
    assert "wanted >= 0.99" in verdict.because


def test_the_reference_runs_once_for_all_candidates(tmp_path: Path) -> None:
    models = Models()
    check(models, tmp_path)
    check(models, tmp_path, candidate=dataclasses.replace(CANDIDATE, path="/other", digest="sha256:o"))
    assert [job for job, _ in models.calls] == ["outputs_torch", "outputs_onnx", "outputs_onnx"]
    check(models, tmp_path, reference=dataclasses.replace(REFERENCE, digest="sha256:changed"))
    check(models, tmp_path, max_texts=100)
    assert [job for job, _ in models.calls].count("outputs_torch") == 3
    assert {p.name.split("-")[0] for p in tmp_path.iterdir()} == {"reference"}


def test_undecided_draws_what_would_decide(tmp_path: Path) -> None:
    """All of 250 neighbours kept reaches 0.9849; a gate of 0.99 needs 381, and a quarter more is drawn."""
    models = Models(turned=0.05)
    verdict = check(models, tmp_path, gate=dataclasses.replace(GATE, rank=0.99))
    assert verdict.outcome == "pass"
    drawn = models.calls[3][1]
    assert models.calls == [
        ("outputs_torch", 250),
        ("outputs_onnx", 250),
        ("outputs_torch", drawn),
        ("outputs_onnx", drawn),
    ]
    assert drawn == math.ceil((381 - 250) * 1.25)


def test_undecided_stops_at_the_limit_and_says_how_many_more(tmp_path: Path) -> None:
    models = Models(turned=0.05)
    verdict = check(models, tmp_path, gate=dataclasses.replace(GATE, rank=0.999), max_texts=300)
    assert verdict.outcome == "undecided"
    assert verdict.more_samples == 3838 - 300
    assert verdict.because is not None
    assert verdict.because.startswith("300 texts of some texts; rank lies between 0.9874 and 1")
    assert verdict.because.endswith(f"about {verdict.more_samples} more would decide")
    assert sum(n for job, n in models.calls if job == "outputs_onnx") == 300


def test_it_does_not_look_again_and_again(tmp_path: Path) -> None:
    models = Models(turned=0.05)
    gate = dataclasses.replace(GATE, rank=0.9999)
    many = Texts(source="many", samples=tuple(Sample(text=f"text {n}") for n in range(450)))
    check(models, tmp_path, gate=gate, texts=many)
    assert len([1 for job, _ in models.calls if job == "outputs_onnx"]) <= LOOKS


def test_few_texts_are_used_as_they_are(tmp_path: Path) -> None:
    few = Texts(source="three", samples=TEXTS.samples[:3])
    verdict = check(Models(turned=0.05), tmp_path, texts=few)
    assert verdict.outcome == "undecided"
    assert verdict.because is not None
    assert verdict.because.startswith("3 texts of three; rank")


def test_models_of_different_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a generate model cannot be compared with a embed model"):
        check(Models(), tmp_path, candidate=dataclasses.replace(CANDIDATE, task="generate"))


def test_a_format_nobody_reads_lists_those_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check(Models(), tmp_path, candidate=dataclasses.replace(CANDIDATE, format="gguf"))
    assert caught.value.hint[0].startswith("known: compressed_tensors, endpoint, modelopt, onnx")


def test_nothing_half_written_stays_when_a_worker_fails(tmp_path: Path) -> None:
    def fails(*_: object) -> Mapping[str, Any]:
        raise UsageError("broken")

    with pytest.raises(UsageError, match="broken"):
        verify_model(CANDIDATE, REFERENCE, GATE, run=fails, scratch=tmp_path, progress=silent, texts=TEXTS)
    assert list(tmp_path.iterdir()) == []


def test_every_reader_names_a_worker_that_exists() -> None:
    from model_optimizer import workers

    folder = Path(workers.__file__).parent
    for name, reader in plugins.load_all(READERS).items():
        assert (folder / f"{reader.JOB}.py").is_file(), name
        assert reader.ENVIRONMENT

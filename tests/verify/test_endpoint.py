"""Servers as candidates: which are taken, what workers are asked, and what can be said of log-probabilities."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.verify import Endpoint, endpoint, run_reference
from model_optimizer.verify.outputs import Outputs
from model_optimizer.verify.tokens import divergence, judge, position

from . import made
from .test_model import CANDIDATE, GATE, REFERENCE, TEXTS, Models, check, silent

SERVER = Endpoint(url="http://127.0.0.1:8000", scheme="bf16", task="embed", served_name="tiny")


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("HTTP://LocalHost:8000/v1/", "http://localhost:8000"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
    ],
)
def test_a_server_of_this_machine(url: str, read: str) -> None:
    assert endpoint.is_url(url)
    assert endpoint.read(url, task="embed", scheme="fp32").url == read


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org:8000", "not a server on this machine"),
        ("http://127.0.0.1.example.org:8000", "not a server on this machine"),
        ("https://127.0.0.1:8000", "not a server on this machine"),
        ("http://127.0.0.1:99999", "is not a URL"),
        ("http://me:secret@127.0.0.1:8000", "holds a user name"),
        ("http://127.0.0.1:8000/v1/completions", "has a path"),
        ("http://127.0.0.1:8000/?key=1", "has a path"),
    ],
)
def test_other_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        endpoint.read(url, task="embed", scheme="fp32")
    assert caught.value.hint
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


class Asked(Models):
    """Remembers the request of every worker."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, environment: str, job: str, request: Mapping[str, Any], progress: Any) -> Any:
        self.requests.append((job, request))
        return super().__call__(
            environment, "outputs_onnx" if request["at"] else "outputs_torch", request, progress
        )


@pytest.mark.parametrize(
    ("scheme", "dtype", "quantized"),
    [("fp32", "float32", False), ("bf16", "bfloat16", False), ("fp16", "float16", False), ("fp8", "float32", True)],
)  # fmt: skip
def test_a_server_is_asked_and_held_to_its_scheme(
    tmp_path: Path, scheme: str, dtype: str, quantized: bool
) -> None:
    models = Asked()
    verdict = check(models, tmp_path, candidate=dataclasses.replace(SERVER, scheme=scheme))
    assert (verdict.outcome, verdict.subject) == ("pass", "http://127.0.0.1:8000")
    (reference, first), (candidate, second) = models.requests
    assert (reference, first["dtype"], first["model"]) == ("outputs_torch", "float32", "/r")
    assert candidate == "outputs_endpoint"
    assert (second["url"], second["served_name"]) == ("http://127.0.0.1:8000", "tiny")
    assert (second["dtype"], second["quantized"]) == (dtype, quantized)
    assert "model" not in second


def test_a_checkpoint_runs_in_the_number_type_of_its_scheme(tmp_path: Path) -> None:
    """In float32 a bf16 candidate would be the reference once more, and always pass."""
    models = Asked()
    check(models, tmp_path, candidate=dataclasses.replace(CANDIDATE, format="safetensors", scheme="bf16"))
    assert [(job, request["dtype"]) for job, request in models.requests] == [
        ("outputs_torch", "float32"),
        ("outputs_torch", "bfloat16"),
    ]


def test_the_reference_can_run_before_a_server_starts(tmp_path: Path) -> None:
    models = Asked()
    for _ in range(2):
        run_reference(REFERENCE, run=models, scratch=tmp_path, progress=silent, texts=TEXTS)
    assert [job for job, _ in models.requests] == ["outputs_torch"]
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"reference"}
    check(models, tmp_path, candidate=SERVER)
    assert [job for job, _ in models.requests] == ["outputs_torch", "outputs_endpoint"]


# -- log-probabilities

LOGITS = [[4.0, 3.0, 1.0, 0.0, -2.0], [9.0, 11.0, 8.0, 2.0, 7.0]]
OTHER = [[2.5, 3.0, 1.0, 0.5, -2.0], [9.0, 10.5, 8.5, 2.0, 7.0]]
IDS = [0, 1, 4]


def log_probabilities(rows: list[list[float]]) -> list[list[float]]:
    sums = [math.log(sum(math.exp(x) for x in row)) for row in rows]
    return [[x - total for x in row] for row, total in zip(rows, sums, strict=True)]


def pair(tmp_path: Path, rows: list[list[float]], **about: object) -> tuple[Outputs, Outputs]:
    """The model of LOGITS, and a candidate with these logits or log-probabilities."""
    reference = made.logits(tmp_path / "r", [LOGITS], [IDS])
    return reference, made.logits(tmp_path / "c", [rows], [IDS], of=[LOGITS], **about)


def with_bounds(candidate: Outputs, known: list[int]) -> Outputs:
    """The same where the asked tokens with a 0 are only known to lie below what is said."""
    arrays = {**candidate.arrays, "asked_known": made.array("B", known)}
    return dataclasses.replace(candidate, arrays=arrays, widths={**candidate.widths, "asked_known": 3})


def test_log_probabilities_of_the_same_model_show_no_difference(tmp_path: Path) -> None:
    reference, candidate = pair(tmp_path, log_probabilities(LOGITS), normalised=True)
    for at in range(2):
        found = position(reference, candidate, at)
        assert found.kl == pytest.approx(0, abs=1e-12)
        assert found.drift[0] < 1e-6, "they are moved to where the reference's logits are"
        assert found.log_candidate == pytest.approx(found.log_reference, abs=1e-6)


def test_log_probabilities_of_another_model_differ_as_its_logits_do(tmp_path: Path) -> None:
    both = [pair(tmp_path, OTHER), pair(tmp_path, log_probabilities(OTHER), normalised=True)]
    raw, normalised = (position(reference, candidate, 0) for reference, candidate in both)
    assert normalised.kl == pytest.approx(raw.kl, rel=1e-5)
    assert normalised.log_candidate == pytest.approx(raw.log_candidate, rel=1e-5)
    assert normalised.drift[0] > 0.1


def test_a_token_that_is_not_listed_counts_as_one_of_the_rest(tmp_path: Path) -> None:
    reference, candidate = pair(tmp_path, log_probabilities(OTHER), normalised=True)
    whole = position(reference, candidate, 0)
    bounded = with_bounds(candidate, [1, 0, 1, 1, 1, 1])
    found = position(reference, bounded, 0)
    assert 0 < found.kl <= whole.kl
    assert position(reference, bounded, 1) == position(reference, candidate, 1)
    (kl,) = [j.comparison for j in judge([(reference, bounded)], GATE) if j.comparison.metric == "kl"]
    assert (kl.where or "").endswith("tokens that the server does not list (1) are part of the rest")


def test_an_upper_bound_shows_a_difference_only_below_what_is_wanted(tmp_path: Path) -> None:
    reference, candidate = pair(tmp_path, log_probabilities(LOGITS), normalised=True)
    for moved, differs in ((0.5, False), (-0.5, True)):
        asked = made.array("f", candidate.arrays["asked_logits"])
        asked[1] += moved
        other = dataclasses.replace(candidate, arrays={**candidate.arrays, "asked_logits": asked})
        found = position(reference, with_bounds(other, [1, 0, 1, 1, 1, 1]), 0)
        assert (found.drift[0] > 0.1) == differs


@given(st.lists(st.floats(-8, 8), min_size=6, max_size=6), st.lists(st.floats(-8, 8), min_size=6, max_size=6))
def test_merging_tokens_never_raises_the_divergence(a: list[float], b: list[float]) -> None:
    """What makes a lower bound of it: an upper bound put in place of a token would not be one."""
    (p,), (q,) = log_probabilities([a]), log_probabilities([b])
    whole = sum(math.exp(x) * (x - y) for x, y in zip(p, q, strict=True))
    for kept in range(6):
        assert divergence(p[:kept], q[:kept]) <= whole + 1e-6

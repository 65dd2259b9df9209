"""Layer `service` and servers of vectors: what may move with a batch is a matter of the number format."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer import api
from model_optimizer.cli.app import app
from model_optimizer.core import Comparison, Slo, UsageError
from model_optimizer.flow import verify_service as flow
from model_optimizer.flow.verify_inside import Inside
from model_optimizer.serve import Served, remember
from model_optimizer.system import files, processes
from model_optimizer.verify.service import verify_service
from model_optimizer.verify.service_seen import Said, Seen, Told

from .odd_server import OddServer, Turn


class Vectors(OddServer):
    """Right."""

    api = "embeddings"


RIGHT = tuple(Said(prompt=n, vector=(1.0, n / 2, n * n / 8)) for n in range(4))


def same(cosine: float, told: Told) -> Comparison:
    """What is said of one vector that moved so far."""
    turned = (*_turned((1.0, 0.0), cosine), 0.0)
    alone = (*RIGHT, Said(prompt=4, vector=(1.0, 0.0, 0.0)))
    alone = (replace(alone[0], vector=(0.0, 0.0, 1.0)), *alone[1:])
    seen = Seen(
        url="u", concurrency=4, markers=tuple("abcde"), alone=alone, told=told,
        together=(*alone[:4], Said(prompt=4, vector=turned)),
    )  # fmt: skip
    found = {c.metric: c for c in verify_service(seen, Slo()).comparisons}
    return found["same_vectors"]


def _turned(vector: tuple[float, float], cosine: float) -> tuple[float, float]:
    sine = math.sqrt(1 - cosine * cosine)
    return cosine * vector[0] - sine * vector[1], sine * vector[0] + cosine * vector[1]


def by(name: str) -> Told:
    return Told(scheme=api.scheme(name), by="--scheme")


@pytest.mark.parametrize(
    ("scheme", "cosine", "outcome"),
    [
        ("fp32", 0.99995, "pass"),
        ("fp32", 0.9997, "fail"),
        ("fp16", 0.99995, "pass"),
        ("fp16", 0.985, "fail"),
        ("bf16", 0.9995, "pass"),
        ("bf16", 0.997, "fail"),
        ("bf16", 0.985, "fail"),
        ("int8", 0.9997, "undecided"),
        ("int8", 0.985, "undecided"),
        ("int8", 0.97, "fail"),
        ("fp8_kv", 0.985, "undecided"),
        ("int8_weight", 0.985, "undecided"),
    ],
)
def test_floats_excuse_no_batch_and_quantized_formats_may(scheme: str, cosine: float, outcome: str) -> None:
    found = same(cosine, by(scheme))
    assert found.outcome == outcome
    kind = "floats" if scheme in ("fp32", "fp16", "bf16") else "quantized formats"
    assert found.where is not None and f"the rule of {kind}, {scheme} by --scheme" in found.where
    assert outcome == "pass" or "depends on what is computed beside it" in str(found.because)


@pytest.mark.parametrize(("cosine", "outcome"), [(0.99995, "pass"), (0.9997, "undecided"), (0.97, "fail")])
def test_a_format_that_nobody_says_is_undecided_and_says_how_to_decide(cosine: float, outcome: str) -> None:
    found = same(cosine, Told())
    assert found.outcome == outcome
    assert found.where is not None and "since nobody says which it is" in found.where
    assert outcome != "undecided" or "--scheme NAME says which" in str(found.because)


def test_the_format_is_the_users_word_then_that_of_serve(tmp_path: Path) -> None:
    """Of the server on that port and of no other; a scheme that is no longer known says nothing."""
    here = processes.own_start()
    for port, scheme in ((8101, "fp16"), (8102, "taken-out")):
        served = Served(
            served_name="m", url=f"http://127.0.0.1:{port}", pid=os.getpid(), started_at=here, engine="vllm",
            scheme=scheme, model="m", log=str(tmp_path / "log"), supervisor=os.getpid(),
            supervisor_started_at=here,
        )  # fmt: skip
        remember(files.data_home() / "servers", served)
        told = flow.told_of(f"http://localhost:{port}", None, api.scheme)
        assert (told.scheme and told.scheme.name, told.by) == (
            ("fp16", "`mopt serve`") if scheme == "fp16" else (None, "")
        )
        served_file = next((files.data_home() / "servers").iterdir())
        served_file.unlink()
    remember(files.data_home() / "servers", replace(served, scheme="fp16"))
    assert flow.told_of("http://127.0.0.1:8102", api.scheme("int8"), api.scheme).by == "--scheme"
    assert flow.told_of("http://127.0.0.1:8103", None, api.scheme) == Told()


def test_the_command_takes_the_scheme_and_no_run(tmp_path: Path) -> None:
    with Vectors() as server:
        words = ["verify", server.url, "--layer", "service", "--requests", "16", "--json"]
        done = CliRunner().invoke(app, [*words, "--scheme", "fp32"])
        wrong = CliRunner().invoke(app, [*words, "--scheme", "nonsense"])
        run = CliRunner().invoke(app, [*words, "--run", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = {c["metric"]: c for c in json.loads(done.stdout)["comparisons"]}
    assert "fp32 by --scheme" in found["same_vectors"]["where"]
    assert isinstance(wrong.exception, UsageError)
    assert isinstance(run.exception, UsageError) and "no candidate of a run" in str(run.exception)


class NoNumbers(Vectors):
    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def vector(self, text: str) -> str:
        return f"[0.5, {self.word}]"


@pytest.mark.parametrize("word", ["NaN", "Infinity"])
def test_a_vector_of_no_numbers_is_an_error(word: str) -> None:
    with NoNumbers(word) as server:
        assert flow.Asker(server.url, None).embed(0).error == "the vector holds what is no number"


class One(Vectors):
    """Takes one text at a time."""

    def status(self, turn: Turn) -> int:
        return 400 if isinstance(turn.body.get("input"), list) else 200


class Reversed(Vectors):
    """The vectors of a list in another order."""

    def vectors(self, turn: Turn, texts: list[str]) -> list[str]:
        return super().vectors(turn, texts)[::-1]


class Few(Vectors):
    """Leaves the last of a long list out."""

    def vectors(self, turn: Turn, texts: list[str]) -> list[str]:
        return super().vectors(turn, texts)[:8]


class Longer(Vectors):
    """Has more numbers when it is asked for several."""

    def vectors(self, turn: Turn, texts: list[str]) -> list[str]:
        found = super().vectors(turn, texts)
        return [v.replace("]", ", 0.1]") for v in found] if len(texts) > 1 else found


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (Vectors, None),
        (One, None),
        (Reversed, "mixed_streams"),
        (Few, "error_rate"),
        (Longer, "same_vectors"),
    ],
)
def test_the_vectors_of_a_list_are_those_of_its_texts(kind: type[Vectors], metric: str | None) -> None:
    with kind() as server:
        asked = Inside(requests=16)
        verdict = flow.verify(server.url, asked, progress=lambda _t, _s: None, told=by("fp32"))
    found = {c.metric: c.outcome for c in verdict.comparisons}
    assert metric is None or found[metric] == "fail"
    if metric is None:
        assert (found["mixed_streams"], found["same_vectors"], found["error_rate"]) == ("pass",) * 3, verdict

"""Layer `service` beside servers that are wrong in one way each, and one that is right."""

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import HostError, LoadPoint, MoptError, Percentiles, Slo, UsageError, Verdict
from model_optimizer.flow import verify_service as flow
from model_optimizer.flow.verify_inside import Inside
from model_optimizer.testing.fake_server import Behaviour, FakeServer
from model_optimizer.verify.service import Feature, Resting, Said, Seen, verify_service

GOOD = Behaviour(echo=True, ttft_ms=3, tpot_ms=0.5)


def look(behaviour: Behaviour, **asked: Any) -> Verdict:
    with FakeServer(behaviour) as server:
        return flow.verify(server.url, Inside(**{"requests": 48, **asked}), progress=lambda _t, _s: None)


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {c.metric: c.outcome for c in verdict.comparisons}


def test_a_server_that_is_right() -> None:
    verdict = look(GOOD)
    found = outcomes(verdict)
    kept = ("error_rate", "mixed_streams", "same_tokens", "starvation")
    assert all(found[name] == "pass" for name in kept), verdict


def test_mixed_streams_show_only_under_load() -> None:
    verdict = look(replace(GOOD, mix_every=5))
    assert verdict.outcome == "fail"
    assert outcomes(verdict)["mixed_streams"] == "fail"
    assert outcomes(verdict)["error_rate"] == "pass"


def test_errors_and_streams_that_are_cut() -> None:
    assert outcomes(look(replace(GOOD, fail_every=9)))["error_rate"] == "fail"
    assert outcomes(look(replace(GOOD, truncate_every=9)))["error_rate"] == "fail"
    assert outcomes(look(replace(GOOD, fail_every=40), slo=Slo(error_rate=0.2)))["error_rate"] == "pass"


def test_one_that_waits_while_others_are_served() -> None:
    assert outcomes(look(replace(GOOD, stall_every=31, stall_ms=1500)))["starvation"] == "fail"


def test_a_limit_that_is_missed() -> None:
    verdict = look(replace(GOOD, ttft_ms=40), slo=Slo(ttft_ms=1))
    assert outcomes(verdict)["ttft_ms"] == "fail"
    assert verdict.because is not None and "ttft_ms" in verdict.because


def test_servers_that_cannot_be_asked() -> None:
    with pytest.raises(HostError, match="nobody answers"):
        flow.verify("http://127.0.0.1:9", Inside(), progress=lambda _t, _s: None)
    with pytest.raises(MoptError, match="answers no completion and no embedding"):
        look(replace(GOOD, apis=frozenset({"rerank"})))
    done = CliRunner().invoke(app, ["verify", "somewhere", "--layer", "service"])
    assert isinstance(done.exception, UsageError)
    done = CliRunner().invoke(app, ["verify", "http://10.0.0.1:80", "--layer", "service"])
    assert isinstance(done.exception, UsageError)


def test_the_command() -> None:
    with FakeServer(replace(GOOD, mix_every=5)) as server:
        words = ["verify", server.url, "--layer", "service", "--requests", "32", "--json"]
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["layer"] == "service"


# Judging, without a server.

ALONE = tuple(Said(prompt=n, pieces=("a ", f"word{n} ", "end"), gaps=(3.0, 3.0, 0.01)) for n in range(4))


def seen(together: tuple[Said, ...], **changed: Any) -> Verdict:
    made: dict[str, Any] = {
        "url": "u", "concurrency": 4, "markers": ("m0", "m1", "m2", "m3"), "alone": ALONE, "together": together,
        **changed,
    }  # fmt: skip
    return verify_service(Seen(**made), Slo())


def test_a_near_tie_is_no_difference() -> None:
    near = tuple(replace(s, pieces=("a ", f"word{s.prompt} ", "stop")) for s in ALONE)
    assert outcomes(seen(near))["same_tokens"] == "pass"
    early = tuple(replace(s, pieces=("b ", f"word{s.prompt} ", "end")) for s in ALONE)
    verdict = seen(early)
    assert outcomes(verdict)["same_tokens"] == "fail"
    assert outcomes(verdict)["mixed_streams"] == "pass"


def test_anothers_answer_or_marker_is_a_mixed_stream() -> None:
    swapped = (replace(ALONE[1], prompt=0), *ALONE[1:])
    assert outcomes(seen(swapped))["mixed_streams"] == "fail"
    marked = (replace(ALONE[0], pieces=("a ", "m2 ")), *ALONE[1:])
    assert outcomes(seen(marked))["mixed_streams"] == "fail"


def test_time_per_token_that_grows() -> None:
    def answers(*seconds: float) -> tuple[Said, ...]:
        return tuple(replace(ALONE[n % 4], seconds=s) for n, s in enumerate(seconds))

    def drift(together: tuple[Said, ...], again: tuple[Said, ...] = ()) -> str:
        return outcomes(seen(together, again=again))["token_time_drift"]

    grows = answers(*(1 + n / 10 for n in range(48)))
    assert drift(grows) == "fail"
    assert drift(grows, answers(*(5.8 + n / 10 for n in range(48)))) == "fail"
    assert (
        drift(grows, answers(*(1.0 for _ in range(48)))) == "pass"
    )  # others worked on the machine for a while
    assert drift(answers(*(1 + n / 100 for n in range(48)))) == "pass"
    assert drift(answers(*(1 + (n % 7 == 0) * n for n in range(48)))) == "pass"  # some slow ones


def test_an_answer_that_waits_once_is_no_starvation() -> None:
    def answers(*slow: int) -> tuple[Said, ...]:
        return tuple(replace(ALONE[n % 4], seconds=2.0 if n in slow else 0.01) for n in range(48))

    def starved(together: tuple[Said, ...], again: tuple[Said, ...] = ()) -> str:
        return outcomes(seen(together, again=again))["starvation"]

    assert starved(answers(20)) == "fail"
    assert starved(answers(20), answers(7)) == "fail"
    assert starved(answers(20), answers()) == "pass"
    assert starved(answers()) == "pass"


def test_a_server_that_slows_down_is_asked_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Seen] = []
    monkeypatch.setattr(
        flow, "verify_service", lambda seen, slo: judged.append(seen) or verify_service(seen, slo)
    )
    for slow in (False, True):
        monkeypatch.setattr(flow, "slows_down", lambda _together, _at_once, slow=slow: slow)
        look(GOOD, requests=16)
    assert [len(seen.again) for seen in judged] == [0, 16]


def test_drift_leaks_and_promises() -> None:
    point = LoadPoint(
        target="concurrency 4", completed=50, failed=0, window_s=1.0, steady=False, drift=0.4,
        tpot_ms=Percentiles(p50=5.0, p99=9.0),
    )  # fmt: skip
    verdict = seen(ALONE, point=point, resting=Resting(running=2, kv_before=0.0, kv_after=0.3))
    found = outcomes(verdict)
    assert (found["steady"], found["left_running"], found["kv_held"]) == ("fail", "fail", "fail")
    faster = replace(point, drift=-0.19)  # it warmed up: vLLM on an H200 did
    assert outcomes(seen(ALONE, point=faster))["steady"] == "pass"
    features = (
        Feature(name="JSON schema", asked=4, wrong=("the answer is no JSON",)),
        Feature(name="tool calls", asked=0, missing="status 400"),
    )
    verdict = seen(ALONE, features=features)
    assert outcomes(verdict)["json_schema"] == "fail"
    assert verdict.because is not None and "tool calls: nothing was seen (status 400)" in verdict.because


def test_a_server_of_vectors_is_asked_for_vectors() -> None:
    verdict = look(replace(GOOD, apis=frozenset({"embeddings"})))
    found = outcomes(verdict)
    assert found["same_vectors"] == "pass"
    assert found["error_rate"] == "fail"  # and one vector for a list of texts
    assert found["mixed_streams"] == "undecided"  # it has one vector for everybody
    assert "same_tokens" not in found and "json_schema" not in found


def test_vectors_that_change_under_load_or_are_anothers() -> None:
    right = tuple(Said(prompt=n, vector=(1.0, n / 2, n * n / 8)) for n in range(4))
    assert outcomes(seen(right, alone=right))["same_vectors"] == "pass"
    swapped = (replace(right[2], prompt=1), *right[2:])
    found = outcomes(seen(swapped, alone=right))
    assert (found["mixed_streams"], found["same_vectors"]) == ("fail", "fail")
    moved = (replace(right[1], vector=(1.0, 0.53, 0.125)), *right[2:])
    found = outcomes(seen(moved, alone=right))
    assert (found["mixed_streams"], found["same_vectors"]) == ("pass", "undecided")
    far = (replace(right[1], vector=(1.0, 0.9, 0.125)), *right[2:])
    assert outcomes(seen(far, alone=right))["same_vectors"] == "fail"


@pytest.mark.parametrize(
    ("content", "why", "asked", "wrong"),
    [
        ('{"ok":   ', "length", 4, 0),
        ('{"ok": true}', "stop", 4, 0),
        ("Sure! Here is", "length", 4, 4),
        ('{"ok": ', "stop", 4, 4),
        (None, "length", 0, 0),
        ("  ", "length", 0, 0),
        ("", "stop", 4, 4),
    ],
)
def test_a_schema_is_judged_by_its_beginning_where_it_was_cut(
    content: str | None, why: str, asked: int, wrong: int
) -> None:
    """A model that fills the schema with spaces never ends: its answers were left out, and nobody said so."""
    found = {f.name: f for f in flow.features(Answering(content, why), 4)}
    assert (found["JSON schema"].asked, len(found["JSON schema"].wrong)) == (asked, wrong)
    if why == "length":
        assert found["tool calls"].missing == "every answer was cut at the limit of tokens"


class Answering(flow.Asker):
    """Says one thing to every chat request."""

    def __init__(self, content: str | None, why: str) -> None:
        self.content, self.why = content, why

    def chat(self, body: Any, *, stream: bool = False) -> tuple[int, dict[str, Any]]:
        return 200, {"content": self.content, "finish_reason": self.why}

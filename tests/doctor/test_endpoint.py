"""`mopt doctor URL` against servers that behave, and against everything else that may listen there."""

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from model_optimizer.cli.commands.doctor import COMMAND
from model_optimizer.core import UsageError
from model_optimizer.core.endpoint import Endpoint, Reply
from model_optimizer.core.host import Listener, Network
from model_optimizer.doctor import examine_endpoint
from model_optimizer.system.probe import endpoint as asking
from model_optimizer.testing.fake_server import Behaviour, FakeServer


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in asking.KEYS:
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(COMMAND, list(arguments))


def found(url: str, model: str | None = None, **environ: str) -> dict[str, Any]:
    """What each check said, by its name."""
    return {f.check: f for f in examine_endpoint(asking.read(url, wanted=model, environ=environ))}


def failing(url: str, model: str | None = None, **environ: str) -> list[str]:
    return [name for name, f in found(url, model, **environ).items() if f.status == "fail"]


Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def small_server(answer: Callable[[str, str, dict[str, str]], Answer]) -> Iterator[str]:
    """Answers every request with what `answer` makes of its method, path and headers."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = answer(self.command, self.path, dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_OPTIONS = reply

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Takes connections and does with each what it is told."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_.append(connection)
            talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in open_:
            connection.close()


def as_json(value: object, status: int = 200, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode()


def models(owner: str, *names: str) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": owner} for name in names]}


# -- a server that works


def test_the_screen_of_a_server_that_works() -> None:
    with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0)) as server:
        done = run(server.url)
        assert done.exit_code == 0, done.stdout
        told = [r.body for r in server.records if r.body]  # the preflight has none
        assert [bool(body.get("stream")) for body in told] == [False, True]
        assert all(body["max_tokens"] == 4 for body in told)
    text = done.stdout.replace(server.url, "URL").replace(str(server.port), "PORT")
    for line in ("ok    reach", "ok    interface", "ok    access", "ok    answers"):
        assert line in text
    assert "serves fake" in text and "FAIL" not in text


def test_json_has_findings_and_the_endpoint() -> None:
    with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0, api_key="s3cret-key")) as server:
        done = CliRunner(env={"MOPT_API_KEY": "s3cret-key"}).invoke(COMMAND, [server.url, "--json"])
    told = json.loads(done.stdout)
    assert {"findings", "endpoint"} <= set(told) and told["endpoint"]["models"] == ["fake"]
    assert "s3cret-key" not in done.stdout
    key = next(f for f in told["findings"] if f["check"] == "key")
    assert key["status"] == "ok" and "MOPT_API_KEY" in key["message"]


@pytest.mark.parametrize(
    ("owner", "engine"),
    [
        ("vllm", "vLLM"),
        ("sglang", "SGLang"),
        ("llamacpp", "llama.cpp"),
        ("tensorrt_llm", "TensorRT-LLM"),
        ("library", "Ollama"),
        ("model-optimizer", "Model-Optimizer"),
        ("somebody", None),
    ],
)
def test_each_server_is_known_by_its_list_of_models(owner: str, engine: str | None) -> None:
    def answer(method: str, path: str, _headers: dict[str, str]) -> Answer:
        if path == "/v1/models":
            return as_json(models(owner, "m"))
        if path in ("/version", "/api/version", "/get_server_info"):
            return as_json({"version": "1.2.3"})
        return as_json({"choices": [{"message": {"content": "Hi"}}]})

    with small_server(answer) as url:
        one = asking.read(url, environ={})
    assert one.engine == engine and one.version == "1.2.3"


def test_a_path_behind_the_port_is_taken_as_it_is_written() -> None:
    for path in ("", "/", "/v1", "/v1/", "/v1/models", "/v1/chat/completions"):
        with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0)) as server:
            assert failing(server.url + path) == []


# -- one thing that is wrong


def test_a_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Network(servers=(Listener(program="vllm", port=8001, everywhere=False),))
    monkeypatch.setattr(asking.network, "read", lambda world: other)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = run(f"http://127.0.0.1:{port}")
    assert done.exit_code == 1
    assert done.stdout.replace(str(port), "PORT") == snapshot("""\
http://127.0.0.1:PORT

FAIL  reach      nothing listens at http://127.0.0.1:PORT
-     interface  waits for reachable
-     access     waits for reachable
-     answers    waits for reachable

BROKEN: nothing listens at http://127.0.0.1:PORT
  check   reachable (reach)
  read    [Errno 111] Connection refused
  do      vllm listens on port 8001: ask that one
          start a server (mopt serve MODEL), or correct the port
          in a container: docker run -p 127.0.0.1:8000:8000, and --host 0.0.0.0 inside it
  source  connect(2); RFC 5280 (certificates)

0 ok, 1 failed, 9 skipped; --all lists each check
""")


def test_a_web_page() -> None:
    with small_server(lambda *_: (200, {"Content-Type": "text/html"}, b"<html>\x1b[2J Hello")) as url:
        done = run(url)
    assert done.exit_code == 1 and "a web page answers there" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_key_that_is_missing_and_one_that_is_wrong() -> None:
    with FakeServer(Behaviour(api_key="right")) as server:
        assert failing(server.url) == ["key"]
        assert failing(server.url, OPENAI_API_KEY="wrong") == ["key"]
        told = found(server.url, OPENAI_API_KEY="wrong")["key"]
        assert "refuses the key in OPENAI_API_KEY" in told.message and "wrong" not in str(told)
        assert failing(server.url, MOPT_API_KEY="right\n") == []


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_a_server_behind_it(status: int) -> None:
    with small_server(
        lambda *_: (status, {"Content-Type": "text/html", "Server": "nginx"}, b"<h1>Bad")
    ) as url:
        told = found(url)["model_server"]
    assert told.status == "fail" and "a proxy" in told.message and "behind it" in told.message


def test_a_redirect_is_not_followed_and_gets_no_key() -> None:
    asked: list[str] = []

    def other(_method: str, path: str, headers: dict[str, str]) -> Answer:
        asked.append(headers.get("Authorization", ""))
        return as_json(models("vllm", "m"))

    with (
        small_server(other) as there,
        small_server(lambda *_: (307, {"Location": f"{there}/v1/models"}, b"")) as url,
    ):
        told = found(url, MOPT_API_KEY="secret")["model_server"]
    assert told.status == "fail" and there in told.message and not asked


def test_a_self_signed_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0), tls=context) as server:
        told = found(server.url, MOPT_API_KEY="secret")
        assert told["reachable"].status == "fail" and "certificate" in told["reachable"].message
        assert told["model_server"].waits_for == "reachable" and not server.records
        assert found(server.url.replace("https", "http"))["reachable"].status == "fail"


def test_https_to_a_server_that_speaks_http() -> None:
    with FakeServer() as server:
        told = found(server.url.replace("http", "https"))["reachable"]
    assert told.status == "fail" and "does not speak https" in told.message


def test_a_server_that_hangs_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ASK_S", 0.3)
    with raw_server(lambda _: None) as url:
        told = found(url)["reachable"]
    assert told.status == "fail" and "does not answer in time" in told.message


def test_a_server_that_drips_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ALL_S", 0.3)
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not done.wait(0.05):
            try:
                connection.sendall(b"X")
            except OSError:
                return

    with raw_server(drip) as url:
        assert found(url)["reachable"].status == "fail"
        done.set()


def test_a_generation_that_hangs_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "GENERATE_S", 0.3)
    with FakeServer(Behaviour(silent=True)) as server:
        told = found(server.url)
    assert told["plain_request"].status == "warn" and told["served_model"].status == "ok"


def test_another_service() -> None:
    def ssh(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

    with raw_server(ssh) as url:
        assert "does not speak HTTP" in found(url)["reachable"].message
    with raw_server(lambda connection: connection.close()) as url:
        assert "closes it without an answer" in found(url)["reachable"].message


def test_a_wrong_name_of_a_model_gets_the_nearest() -> None:
    def answer(method: str, path: str, _headers: dict[str, str]) -> Answer:
        return as_json(models("vllm", "Qwen/Qwen3-8B", "other"))

    with small_server(answer) as url:
        told = found(url, model="qwen3-8b")["served_model"]
    assert told.status == "fail" and "nearest is `Qwen/Qwen3-8B`" in told.message


def test_a_prefix_that_the_server_does_not_have() -> None:
    with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0)) as server:
        told = found(f"{server.url}/llm")
    assert told["path"].status == "fail" and f"{server.url}/v1" in (told["path"].hint or "")


def test_a_server_without_models() -> None:
    with small_server(lambda *_: as_json({"data": []})) as url:
        assert failing(url) == ["served_model"]


def test_a_base_model_has_no_chat() -> None:
    def answer(method: str, path: str, _headers: dict[str, str]) -> Answer:
        if path == "/v1/models":
            return as_json(models("vllm", "base"))
        if path == "/v1/chat/completions":
            return as_json({"error": {"message": "no chat template is defined"}}, 400)
        return as_json({"choices": [{"text": "Hi"}]})

    with small_server(answer) as url:
        told = found(url)
    assert told["chat_template"].status == "warn" and told["plain_request"].status == "ok"
    assert told["streamed_request"].status == "fail", "it answers a stream with a whole answer"


def test_an_embedding_server_is_fine() -> None:
    with FakeServer(Behaviour(ttft_ms=0, apis=frozenset({"embeddings"}))) as server:
        told = found(server.url)
    assert told["plain_request"].status == "ok" and "vector" in told["plain_request"].message
    assert told["chat_template"].status == "skipped" and told["streamed_request"].status == "skipped"


def test_a_server_whose_engine_is_dead() -> None:
    with FakeServer(Behaviour(status=500)) as server:
        told = found(server.url)
    assert told["plain_request"].status == "fail" and "told to fail" in (told["plain_request"].evidence or "")


def test_a_stream_that_breaks_off() -> None:
    with FakeServer(Behaviour(ttft_ms=0, tpot_ms=0, truncate_every=3)) as server:
        assert failing(server.url) == ["streamed_request"]


def test_all_interfaces_without_a_key_and_any_web_page() -> None:
    open_ = Endpoint(
        url="http://127.0.0.1:8000",
        local=True,
        everywhere=True,
        published="web",
        models=("m",),
        replies={"models": Reply(status=200), "preflight": Reply(status=200, origin="*")},
    )
    told = {f.check: f for f in examine_endpoint(open_)}
    assert told["bind_address"].status == "warn" and "127.0.0.1:8000:8000" in (
        told["bind_address"].hint or ""
    )
    assert told["cors"].status == "warn"


def test_the_port_of_this_machine_is_looked_up() -> None:
    with FakeServer() as server:
        one = asking.read(server.url, environ={})
    assert (one.local, one.everywhere) == (True, False)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host", "http://", "http://host:99999", "http://[::1", "http://a b", "http://user:pw@host"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        asking.read(url, environ={})


@pytest.mark.parametrize(
    "arguments",
    [("--model", "m"), ("http://h", "--script"), ("http://h", "--for", "vllm"), ("h", "--save", "x")],
)
def test_a_server_is_no_machine(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code != 0 and not done.stdout


def test_every_check_of_a_server_says_what_to_do() -> None:
    for one in (Endpoint(url="http://h"), Endpoint(url="http://h", local=False, models=())):
        for finding in examine_endpoint(one):
            assert "has a bug" not in finding.message, finding.evidence
            assert finding.source
            if finding.status in ("fail", "warn"):
                assert finding.evidence and finding.hint, finding.check

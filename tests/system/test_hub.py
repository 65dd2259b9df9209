"""Hubs, played by a small server on this machine: what is asked, what is said when the answer is no."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from model_optimizer.core import HostError, UsageError
from model_optimizer.system import hub, models
from model_optimizer.system.hub import address as addresses
from model_optimizer.system.models import spec as building
from model_optimizer.system.models.config import Config
from model_optimizer.testing.checkpoints import TINY_LLAMA, layout, write_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """`folders` maps a model id to the folder that plays it, or to a status and error code of the hub."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folders: dict[str, Path | tuple[int, str]] = {}
        self.asked: list[str] = []
        self.cut_after: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        url = urlsplit(self.path)
        query = {key: value[0] for key, value in parse_qs(url.query).items()}
        if url.path.startswith("/api/v1/models/"):
            self._modelscope(url.path.removeprefix("/api/v1/models/"), query)
        elif url.path.startswith("/api/models/"):
            self._huggingface(url.path.removeprefix("/api/models/"))
        else:
            model, _, rest = url.path.strip("/").partition("/resolve/")
            self._file(self._folder(model), rest.partition("/")[2])

    def _folder(self, model: str) -> Path | None:
        found = self.server.folders.get(model, (404, "RepoNotFound"))
        if isinstance(found, Path):
            return found
        self._send(found[0], b"{}", {"X-Error-Code": found[1], "X-Error-Message": "no"})
        return None

    def _huggingface(self, path: str) -> None:
        parts = path.split("/")
        folder = self._folder("/".join(parts[:2]))
        if folder is None:
            return
        files = [{"rfilename": name, "size": size} for name, size in sizes(folder).items()]
        if "tree" in parts:
            tree = [{"type": "file", "path": f["rfilename"], "size": f["size"], "oid": COMMIT} for f in files]
            self._json(tree)
        elif "revision" in parts and parts[-1] not in (COMMIT, "main"):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        else:
            self._json({"id": "/".join(parts[:2]), "sha": COMMIT, "siblings": files})

    def _modelscope(self, path: str, query: dict[str, str]) -> None:
        model, _, rest = path.partition("/repo")
        folder = self._folder(model)
        if folder is None:
            return
        if rest == "/files":
            files = [{"Path": name, "Size": size, "Type": "blob"} for name, size in sizes(folder).items()]
            self._json({"Code": 200, "Data": {"Files": [*files, {"Path": "1_Pooling", "Type": "tree"}]}})
        else:
            self._file(folder, query["FilePath"])

    def _file(self, folder: Path | None, name: str) -> None:
        if folder is None:
            return
        if not (folder / name).is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content, status = (folder / name).read_bytes(), 200
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            content, status = content[int(first) : int(last) + 1 if last else None], 206
        self._send(
            status, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{name}-1"', "Accept-Ranges": "bytes"}
        )

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            cut = self.server.cut_after
            self.wfile.write(content if cut is None else content[:cut])
        if self.server.cut_after is not None:
            self.close_connection = True


def sizes(folder: Path) -> dict[str, int]:
    return {
        f.relative_to(folder).as_posix(): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()
    }


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MOPT_OFFLINE", "MODELSCOPE", "HF_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    spec = building.build(Config(dict(TINY_LLAMA)), name="tiny", provenance="test")
    folder = write_folder(tmp_path / "tiny", TINY_LLAMA, layout(spec), shards=2)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"\x80" * 1000)
    return folder


@pytest.fixture
def client() -> None:
    pytest.importorskip("huggingface_hub")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Qwen/Qwen3-8B", ("huggingface", "Qwen/Qwen3-8B")),
        ("gpt2", ("huggingface", "gpt2")),
        ("modelscope:Qwen/Qwen3-8B", ("modelscope", "Qwen/Qwen3-8B")),
        ("ModelScope:Qwen/Qwen3-8B/", ("modelscope", "Qwen/Qwen3-8B")),
        ("hf:Qwen/Qwen3-8B", ("huggingface", "Qwen/Qwen3-8B")),
        ("a/b/c", None),
        ("../x", None),
        ("a/..", None),
        ("a b", None),
        ("-x/y", None),
        ("", None),
    ],
)
def test_ids(text: str, want: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODELSCOPE", raising=False)
    found = hub.parse(text)
    assert (found and (found.site, found.id)) == want


@pytest.mark.parametrize("variable", ["MODELSCOPE", "VLLM_USE_MODELSCOPE"])
def test_the_environment_chooses_modelscope(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "True")
    found, other = hub.parse("Qwen/Qwen3-8B"), hub.parse("hf:Qwen/Qwen3-8B")
    assert found is not None
    assert other is not None
    assert (found.site, other.site) == ("modelscope", "huggingface")


@pytest.mark.usefixtures("client")
def test_a_model_on_the_hub_is_read_from_its_headers(fake: FakeHub, tiny: Path) -> None:
    fake.folders["someone/tiny"] = tiny
    spec, local = models.read("someone/tiny"), models.read(str(tiny))
    assert spec.parameters == local.parameters
    assert spec.parameters_source == "header"
    assert spec.checkpoint_bytes == local.checkpoint_bytes
    assert spec.path is None
    assert spec.name == "someone/tiny"
    assert spec.provenance == "the hub at 0123456789ab: config.json and the headers of its weights"
    assert not any(path.endswith("pytorch_model.bin") for path in fake.asked)


def test_modelscope(fake: FakeHub, tiny: Path) -> None:
    fake.folders["someone/tiny"] = tiny
    spec = models.read("modelscope:someone/tiny")
    assert spec.parameters == models.read(str(tiny)).parameters
    assert spec.parameters_source == "config"
    assert spec.checkpoint_bytes == models.read(str(tiny)).checkpoint_bytes
    assert spec.name == "someone/tiny"


def test_what_the_hub_says_of_sentence_transformers_counts(fake: FakeHub, tiny: Path) -> None:
    stages = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in stages]
    (tiny / "modules.json").write_text(json.dumps(modules))
    (tiny / "1_Pooling").mkdir()
    (tiny / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    fake.folders["someone/tiny"] = tiny
    spec = models.read("modelscope:someone/tiny")
    assert (spec.task, spec.pooling) == ("embed", "last")


def test_a_known_id_asks_nobody(fake: FakeHub) -> None:
    spec = models.read("Qwen/Qwen3-8B")
    assert spec.provenance.startswith("the built-in table")
    assert not fake.asked


@pytest.mark.usefixtures("client")
def test_a_revision_is_asked_of_the_hub(fake: FakeHub, tiny: Path) -> None:
    fake.folders["Qwen/Qwen3-8B"] = tiny
    spec = models.read("Qwen/Qwen3-8B", revision="main")
    assert spec.hidden_size == 16
    with pytest.raises(UsageError, match="has no revision `v9`"):
        models.read("Qwen/Qwen3-8B", revision="v9")


@pytest.mark.usefixtures("client")
def test_the_hub_is_asked_first_on_request_and_the_table_stands_in(fake: FakeHub, tiny: Path) -> None:
    fake.folders["Qwen/Qwen3-8B"] = tiny
    assert models.read("Qwen/Qwen3-8B", offline=False).hidden_size == 16
    fake.folders["Qwen/Qwen3-4B"] = (503, "Down")
    spec = models.read("Qwen/Qwen3-4B", offline=False)
    assert spec.hidden_size == 2560
    assert "could not be" in spec.notes[0]


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (404, "RepoNotFound", "knows no model"),
        (401, "RepoNotFound", "knows no model"),
        (403, "GatedRepo", "gated"),
        (500, "Broken", "is not in the built-in table"),
    ],
)
def test_when_the_hub_says_no(fake: FakeHub, status: int, code: str, says: str) -> None:
    fake.folders["someone/else"] = (status, code)
    with pytest.raises(UsageError, match=says) as caught:
        models.read("someone/else")
    assert caught.value.hint


def test_offline_asks_nobody(fake: FakeHub, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.folders["someone/tiny"] = tiny
    with pytest.raises(UsageError, match="not in the built-in table"):
        models.read("modelscope:someone/tiny", offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="not in the built-in table"):
        models.read("modelscope:someone/tiny")
    assert not fake.asked


def test_a_hub_that_never_answers_does_not_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The port is open, nobody reads from it."""
    import socket

    from model_optimizer.system.hub import modelscope

    monkeypatch.setattr(modelscope, "REQUEST_S", 0.2)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MOPT_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UsageError, match="not in the built-in table") as caught:
            models.read("modelscope:someone/tiny")
    assert any("timed out" in line for line in caught.value.cause)


@pytest.mark.usefixtures("client")
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MOPT_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="not in the built-in table") as caught:
        models.read("someone/tiny")
    assert "cannot be asked" in " ".join(caught.value.cause)


def test_a_missing_client_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MOPT_OFFLINE", "MODELSCOPE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as caught:
        models.read("someone/tiny")
    assert "huggingface_hub is not installed" in caught.value.cause
    assert any("model-optimizer[hub]" in line for line in caught.value.hint)


def cached(tmp_path: Path, tiny: Path, id: str) -> Path:
    """The layout of the client's cache: refs name a commit, snapshots hold it."""
    place = tmp_path / "hub" / f"models--{id.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    (place / "snapshots").mkdir()
    (place / "snapshots" / COMMIT).symlink_to(tiny, target_is_directory=True)
    return place / "snapshots" / COMMIT


def test_an_earlier_download_is_used(tmp_path: Path, fake: FakeHub, tiny: Path) -> None:
    place = cached(tmp_path, tiny, "someone/tiny")
    spec = models.read("someone/tiny")
    assert spec.provenance == "an earlier download from the hub"
    assert spec.path == str(place)
    assert spec.name == "someone/tiny"
    assert hub.download(hub.Address(id="someone/tiny")) == place
    assert not fake.asked


def test_an_interrupted_download_does_not_hide_the_table(tmp_path: Path, fake: FakeHub, tiny: Path) -> None:
    place = cached(tmp_path, tiny, "Qwen/Qwen3-8B")
    (tiny / "model-00002-of-00002.safetensors").unlink()
    spec = models.read("Qwen/Qwen3-8B")
    assert spec.provenance.startswith("the built-in table")
    assert not hub.is_complete(place)


@pytest.mark.usefixtures("client")
def test_download(fake: FakeHub, tiny: Path) -> None:
    fake.folders["someone/tiny"] = tiny
    said = hub.look(hub.Address(id="someone/tiny"))
    assert said.download_bytes == sum(f.stat().st_size for f in tiny.iterdir() if f.suffix != ".bin")
    folder = hub.download(hub.Address(id="someone/tiny"))
    assert {f.name for f in folder.iterdir()} == {f.name for f in tiny.iterdir()} - {"pytorch_model.bin"}
    assert models.read("someone/tiny").path == str(folder)


def test_a_download_from_modelscope_goes_on_where_it_was_cut(fake: FakeHub, tiny: Path) -> None:
    fake.folders["someone/tiny"] = tiny
    said = hub.parse("modelscope:someone/tiny")
    assert said is not None
    remote = hub.look(said)
    from model_optimizer.system.hub import modelscope

    fake.cut_after = 50
    with pytest.raises(HostError, match="cannot be asked") as caught:
        modelscope.download(remote, lambda what, share: None)
    assert "run it again to go on" in caught.value.cause[0]
    fake.cut_after = None
    shares: list[float | None] = []
    folder = hub.download(said, lambda what, share: shares.append(share))
    assert shares[-1] == 1.0
    assert not list(folder.glob("*.part"))
    for file in folder.iterdir():
        assert file.read_bytes() == (tiny / file.name).read_bytes()
    assert not (folder / "pytorch_model.bin").exists()


def test_a_download_that_has_no_room_is_refused(
    fake: FakeHub, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.folders["someone/tiny"] = tiny
    monkeypatch.setattr("model_optimizer.system.files.free_bytes", lambda path: 10)
    said = hub.parse("modelscope:someone/tiny")
    assert said is not None
    with pytest.raises(HostError, match="of disk"):
        hub.download(said)


def test_the_token_is_never_part_of_an_error(monkeypatch: pytest.MonkeyPatch, fake: FakeHub) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    fake.folders["someone/else"] = (403, "GatedRepo")
    with pytest.raises(UsageError) as caught:
        models.read("someone/else")
    assert "verysecret" not in f"{caught.value.message} {caught.value.cause} {caught.value.hint}"


def test_a_long_error_is_one_line() -> None:
    assert "\n" not in addresses.first_line(ValueError("a\nb"))
    assert len(addresses.first_line(ValueError("x" * 999))) == 200

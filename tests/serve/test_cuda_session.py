"""ONNX Runtime on a GPU computes there or not at all; the library alone would go on with the CPU."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from model_optimizer.core import ToolError
from model_optimizer.system import environments, processes

from .conftest import quiet

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Played(ModuleType):
    """The library's calls as 1.31 documents them. `built` and `starts`: what it holds, what the machine lets run."""

    __version__ = "1.31.1"
    cuda_version = "13.0"
    SessionOptions = staticmethod(
        lambda: SimpleNamespace(add_session_config_entry=lambda *_: None, log_severity_level=2)
    )
    asked: ClassVar[list[Any]] = []

    def __init__(self, built: list[str], starts: list[str]) -> None:
        super().__init__("onnxruntime")
        self.built, self.starts, self.loaded = built, starts, 0

    def get_available_providers(self) -> list[str]:
        return self.built

    def preload_dlls(self) -> None:
        self.loaded += 1

    def InferenceSession(self, _path: str, _options: Any, providers: list[Any]) -> Any:
        self.asked[:] = providers
        named = [p if isinstance(p, str) else p[0] for p in providers]
        node = SimpleNamespace(name="x")
        self.fallback = True
        return SimpleNamespace(
            get_providers=lambda: [name for name in named if name in self.starts],
            get_inputs=lambda: [node],
            get_outputs=lambda: [node],
            disable_fallback=lambda: setattr(self, "fallback", False),
        )


def opened(monkeypatch: pytest.MonkeyPatch, library: Played, backend: str) -> Any:
    import _serve_session

    monkeypatch.setitem(sys.modules, "onnxruntime", library)
    return _serve_session.open_session(Path("/m"), {"backend": backend, "threads": None, "spin": False})


def test_a_gpu_that_starts_is_used_with_its_libraries_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Played([CUDA, CPU], [CUDA, CPU])
    assert opened(monkeypatch, library, "onnx_cuda").version == "onnxruntime-gpu 1.31.1"
    (name, options), last = library.asked
    assert (name, last, library.loaded) == (CUDA, CPU, 1)
    assert options["use_tf32"] == "0"
    assert not library.fallback, "a failure on the GPU would move it to the CPU"


def test_the_cpu_is_asked_for_alone_by_its_own_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Played([CUDA, CPU], [CUDA, CPU])
    assert opened(monkeypatch, library, "onnx").version == "onnxruntime 1.31.1"
    assert library.asked == [CPU]


@pytest.mark.parametrize(
    ("built", "starts", "reference", "says"),
    [
        ([CPU], [CPU], "no-cuda-provider", "built for the CPU alone"),
        ([CUDA, CPU], [CPU], "cuda-refused", "could not start its CUDA provider"),
    ],
)
def test_it_never_falls_back_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch, built: list[str], starts: list[str], reference: str, says: str
) -> None:
    from _contract import Failure

    with pytest.raises(Failure, match=says) as caught:
        opened(monkeypatch, Played(built, starts), "onnx_cuda")
    assert caught.value.reference == reference
    assert any("--engine onnxruntime" in hint for hint in caught.value.hint)


def test_the_build_for_gpus_is_named_without_loading_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import _serve_session

    info = tmp_path / "onnxruntime_gpu-9.8.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 9.8.7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert _serve_session.version_of(tmp_path, {"backend": "onnx_cuda"}) == "onnxruntime 9.8.7"


@pytest.mark.engine
def test_the_build_for_the_cpu_is_named_by_the_real_server(minilm_onnx: Path) -> None:
    request = {"backend": "onnx_cuda", "model": str(minilm_onnx), "served_name": "m", "host": "127.0.0.1",
               "port": processes.free_port(), "max_batch_size": 2, "batch_timeout_ms": 1.0}  # fmt: skip
    with pytest.raises(ToolError, match="built for the CPU alone"):
        environments.run_worker("onnx", "serve_embed", request, quiet)

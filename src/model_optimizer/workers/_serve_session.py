"""What computes a folder's graph behind our servers: ONNX Runtime on the CPU or a GPU, or an engine on a GPU.

Both have `inputs` and `outputs` (names), `version`, and `run(names, feed)`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _contract import fail
from _serve_engine import FLAVOURS, EngineSession

CUDA = "onnx_cuda"
CUDA_PROVIDER = "CUDAExecutionProvider"
INSTEAD = "or serve it on the CPU: --engine onnxruntime"
ON_CUDA = {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"}
"""Convolutions are chosen by rule: the default times all of them for each new shape. 32 bits mean 32."""


class Session(Protocol):
    """A graph that is ready to compute."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    version: str

    def run(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[np.ndarray]: ...

    def longer(self, name: str, length: int) -> int:
        """What the second dimension of an input is filled up to."""
        ...


def open_session(folder: Path, request: Mapping[str, Any]) -> Session:
    """By the request's `backend`. Raises Failure where it cannot be loaded."""
    flavour = FLAVOURS.get(request["backend"])
    if flavour is not None:
        return EngineSession(folder, flavour, trusted=bool(request.get("allow_engine_code")))
    cuda = request["backend"] == CUDA
    return OnnxSession(folder, threads=request.get("threads"), spin=bool(request.get("spin")), cuda=cuda)


class OnnxSession:
    """A folder with model.onnx in ONNX Runtime. Idle threads burn their core only with `spin`.

    With `cuda` it computes on the GPU, or not at all: the library alone would go on with the CPU.
    """

    def __init__(self, folder: Path, *, threads: int | None, spin: bool, cuda: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        if threads:
            options.intra_op_num_threads = threads
        path = folder / "model.onnx"
        providers: list[Any] = ["CPUExecutionProvider"]
        if cuda:
            providers.insert(0, (_cuda_provider(onnxruntime), ON_CUDA))
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
            fail(
                "onnx-unreadable",
                f"ONNX Runtime cannot load `{folder.name}/{path.name}`",
                [str(error).strip().splitlines()[0][:300]],
                [INSTEAD.removeprefix("or ")] if cuda else ["make the artefact again"],
            )
        if cuda and self._session.get_providers()[0] != CUDA_PROVIDER:
            fail(
                "cuda-refused",
                "ONNX Runtime could not start its CUDA provider, and would compute on the CPU",
                [f"what it tried is in the lines above; {_built_for(onnxruntime)}"],
                ["`mopt doctor` looks at driver and CUDA", INSTEAD],
            )
        # Else a failure on the GPU would make it go on with the CPU, request after request.
        self._session.disable_fallback()
        self.inputs = tuple(found.name for found in self._session.get_inputs())
        self.outputs = tuple(found.name for found in self._session.get_outputs())
        self.version = f"{'onnxruntime-gpu' if cuda else 'onnxruntime'} {onnxruntime.__version__}"

    def run(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[np.ndarray]:
        return self._session.run(list(names), dict(feed))

    def longer(self, name: str, length: int) -> int:
        """Any length is taken as it is."""
        del name
        return length


def _cuda_provider(onnxruntime: Any) -> str:
    """The name of the provider, with CUDA's libraries loaded from the packages beside it, where they are."""
    if CUDA_PROVIDER not in onnxruntime.get_available_providers():
        fail(
            "no-cuda-provider",
            f"onnxruntime {onnxruntime.__version__} here is built for the CPU alone",
            ["it and onnxruntime-gpu replace each other's files: the one installed last is what runs"],
            ["uninstall both, then install onnxruntime-gpu", INSTEAD],
        )
    onnxruntime.preload_dlls()
    return CUDA_PROVIDER


def _built_for(onnxruntime: Any) -> str:
    cuda = getattr(onnxruntime, "cuda_version", None)
    return f"{onnxruntime.__version__} is built for CUDA {cuda}" if cuda else "its CUDA version is not known"


def version_of(folder: Path, request: Mapping[str, Any]) -> str:
    """What computes, told without loading it: an engine runs with the version that built it."""
    if request["backend"] in FLAVOURS:
        facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))["engine"]
        return f"{facts['library']} {facts['version']}"
    packages = ("torch", "transformers") if request["backend"] == "torch" else ("onnxruntime",)
    return ", ".join(f"{name} {_installed(name)}" for name in packages)


def _installed(name: str) -> str:
    """Of the package, or of its build for GPUs, which has a name of its own."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version(f"{name}-gpu")

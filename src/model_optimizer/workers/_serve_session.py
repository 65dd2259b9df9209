"""What computes a folder's graph behind our servers: ONNX Runtime on the CPU, or an engine on a GPU.

Both have `inputs` and `outputs` (names), `version`, and `run(names, feed)`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _contract import fail
from _serve_engine import FLAVOURS, EngineSession


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
        return EngineSession(folder, flavour)
    return OnnxSession(folder, threads=request.get("threads"), spin=bool(request.get("spin")))


class OnnxSession:
    """A folder with model.onnx in ONNX Runtime. Idle threads burn their core only with `spin`."""

    def __init__(self, folder: Path, *, threads: int | None, spin: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        if threads:
            options.intra_op_num_threads = threads
        path = folder / "model.onnx"
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
            fail(
                "onnx-unreadable",
                f"ONNX Runtime cannot load `{folder.name}/{path.name}`",
                [str(error).strip().splitlines()[0][:300]],
                ["make the artefact again"],
            )
        self.inputs = tuple(found.name for found in self._session.get_inputs())
        self.outputs = tuple(found.name for found in self._session.get_outputs())
        self.version = f"onnxruntime {onnxruntime.__version__}"

    def run(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[np.ndarray]:
        return self._session.run(list(names), dict(feed))

    def longer(self, name: str, length: int) -> int:
        """Any length is taken as it is."""
        del name
        return length


def version_of(folder: Path, request: Mapping[str, Any]) -> str:
    """What computes, told without loading it: an engine runs with the version that built it."""
    import importlib.metadata

    packages = {"onnx": ("onnxruntime",), "torch": ("torch", "transformers")}
    if request["backend"] in FLAVOURS:
        facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))["engine"]
        return f"{facts['library']} {facts['version']}"
    names = packages[request["backend"]]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)

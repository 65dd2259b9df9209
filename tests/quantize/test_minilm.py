"""A real embedding model from its checkpoint to 8 bits, by the command that a person types."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import Artifact, codec
from model_optimizer.testing.contracts import artifact_contract

pytestmark = pytest.mark.engine

# Cosines between what the 8-bit graph and PyTorch make of three sentences, each alone, and the neighbours.
COMPARE = """
import json, sys
import numpy, onnxruntime, torch
from tokenizers import Tokenizer
from transformers import AutoModel

source, made = sys.argv[1:]
tokens = Tokenizer.from_file(f"{made}/tokenizer.json")
tokens.no_padding()
model = AutoModel.from_pretrained(source, dtype=torch.float32).eval()
session = onnxruntime.InferenceSession(f"{made}/model.onnx", providers=["CPUExecutionProvider"])
cosines = []
for text in ["A cat sits on the mat.", "The stock market fell sharply today.", "Felines rest on rugs."]:
    found = tokens.encode(text)
    fed = {"input_ids": found.ids, "attention_mask": found.attention_mask, "token_type_ids": found.type_ids}
    fed = {name: numpy.array([values], dtype=numpy.int64) for name, values in fed.items()}
    got = session.run(["sentence_embedding"], fed)[0][0]
    with torch.no_grad():
        hidden = model(**{name: torch.tensor(values) for name, values in fed.items()}).last_hidden_state
    wanted = hidden[0].mean(0).numpy()
    cosines.append(float(got @ wanted / numpy.linalg.norm(got) / numpy.linalg.norm(wanted)))
    assert abs(numpy.linalg.norm(got) - 1) < 1e-5
print(json.dumps(cosines))
"""


def test_minilm_in_8_bits(minilm: Path, onnx_env_python: Path, tmp_path: Path) -> None:
    out = tmp_path / "int8"
    result = CliRunner().invoke(
        app,
        ["quantize", str(minilm), "--scheme", "int8", "--to", "onnx", "--out", str(out), "--json"],
        catch_exceptions=False,
    )
    made = codec.loads(result.stdout, Artifact)
    artifact_contract(made)
    assert (made.scheme, made.format, made.task) == ("int8", "onnx", "embed")
    assert 55e6 < made.bytes < 62e6
    notes = "\n".join(made.notes)
    assert "same as PyTorch in 3 batches" in notes
    assert "36 of 36 weight matrices" in notes
    assert [path.name for path in tmp_path.iterdir()] == ["int8"]
    assert json.loads((out / "mopt.json").read_text())["max_tokens"] == 256

    done = subprocess.run(
        [onnx_env_python, "-P", "-c", COMPARE, minilm, out],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    cosines = json.loads(done.stdout)
    assert min(cosines) > 0.98
    assert max(cosines) < 1.0, "it was not quantized at all"

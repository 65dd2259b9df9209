"""A model of more than 2 GB in 32 bits: protobuf ends there, so its weights must lie in a file of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_optimizer.system import probe

pytestmark = [pytest.mark.engine, pytest.mark.slow]

GIB = 1 << 30
NEEDED = 9 * GIB
MAKE = """
import sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
torch.set_default_dtype(torch.bfloat16)
config = BertConfig(
    hidden_size=1536, intermediate_size=49152, num_hidden_layers=4, num_attention_heads=16, vocab_size=64,
    max_position_embeddings=64,
)
model = BertModel(config)
model.save_pretrained(sys.argv[1])
words = {word: n for n, word in enumerate(["[PAD]", "[UNK]", *(f"w{n}" for n in range(62))])}
made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", model_max_length=64)
fast.save_pretrained(sys.argv[1])
print(sum(p.numel() for p in model.parameters()))
"""


def test_weights_beyond_2_gb_are_exported_cast_and_compared(onnx_env_python: Path, tmp_path: Path) -> None:
    available = probe.available_memory_bytes()
    if available is not None and available < NEEDED:
        pytest.skip(f"{available / GIB:.1f} GiB of memory are free, {NEEDED / GIB:.0f} are needed")
    source, out, steps = tmp_path / "large", tmp_path / "onnx", tmp_path / "steps"
    source.mkdir()
    made = subprocess.run(
        [onnx_env_python, "-P", "-c", MAKE, source], capture_output=True, text=True, check=True, timeout=600
    )
    parameters = int(made.stdout.splitlines()[-1])
    assert 4 * parameters > 2 * GIB
    done = subprocess.run(
        [sys.executable, "-m", "model_optimizer", "convert", source, "--to", "onnxruntime", "--scheme", "fp16",
         "--steps", steps, "--out", out],
        capture_output=True, text=True, timeout=1500, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert (out / "model.onnx").stat().st_size < 50_000_000
    sizes = {path.parent.name: path.stat().st_size for path in steps.glob("*/model.onnx.data")}
    assert max(sizes.values()) >= 4 * (parameters - 10_000_000), sizes
    assert 2 * parameters > (out / "model.onnx.data").stat().st_size >= 2 * (parameters - 10_000_000)
    first, *_, last = json.loads((out / "chain.json").read_text())["links"]
    assert first["parity"]["largest_difference"] < 1e-4
    assert last["distance"]["cosine"] > 0.999

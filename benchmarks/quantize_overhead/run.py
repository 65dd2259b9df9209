"""Wall time, processor time and peak memory of `mopt quantize` beside the library called directly."""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.system import environments

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples/models/tiny-qwen3"
SMOLLM2 = ROOT / ".cache/SmolLM2-135M-Instruct"
COUNT, LENGTH, STEPS = 16, 256, 6
SCHEMES = ("fp8", "gptq-int4", "int8", "awq-int4")

FREE = """
import sys
from llmcompressor import model_free_ptq
ignore = ["lm_head", "model.embed_tokens"]
model_free_ptq(sys.argv[1], sys.argv[2], scheme="FP8_DYNAMIC", ignore=ignore, device="cpu")
"""
CALIBRATED = """
import json, sys
import torch, transformers
from compressed_tensors.quantization import preset_name_to_scheme
from torch.utils.data import DataLoader
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from llmcompressor.pipelines import cache

if not torch.accelerator.is_available():  # AWQ pins memory for one
    cache.IntermediatesCache.pin_memory = lambda self, *_arguments, **_named: None
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
texts = [json.loads(line)["text"] for line in open(sys.argv[3])][:int(sys.argv[4])]
rows = [torch.tensor([tokenizer(text)["input_ids"][:int(sys.argv[5])]]) for text in texts]
rows = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
kind = sys.argv[6]
scheme = preset_name_to_scheme("W8A8" if kind == "int8" else "W4A16", ["Linear"])
if kind != "int8":
    scheme.weights.group_size = 128 if model.config.hidden_size % 128 == 0 else 64
    scheme.weights.symmetric = False
common = {"config_groups": {"group_0": scheme}, "ignore": ["lm_head"]}
recipe = {
    "gptq-int4": lambda: [GPTQModifier(actorder="static", **common)],
    "int8": lambda: [SmoothQuantModifier(smoothing_strength=0.8), GPTQModifier(actorder=None, **common)],
    "awq-int4": lambda: [AWQModifier(n_grid=int(sys.argv[7])), QuantizationModifier(**common)],
}[kind]()
oneshot(
    model=model, recipe=recipe, dataset=DataLoader(rows, batch_size=None), pipeline="sequential",
    num_calibration_samples=len(rows), shuffle_calibration_samples=False,
)
model.save_pretrained(sys.argv[2], save_compressed=True)
tokenizer.save_pretrained(sys.argv[2])
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """`memory_bytes` is the peak of the largest process."""

    wall_s: float
    cpu_s: float
    memory_bytes: int


def measured(command: Sequence[str | Path]) -> Cost:
    """One command with all its children, in a process whose children are nobody else's."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wall, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        found = [done.returncode, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]
        os.write(writer, json.dumps([*found, done.stderr[-1500:]]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        code, wall, cpu, memory, said = json.loads(stream.read())
    os.waitpid(child, 0)
    if code:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{said}")
    return Cost(wall_s=wall, cpu_s=cpu, memory_bytes=memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scheme", choices=SCHEMES, default="fp8")
    asked = parser.parse_args()
    model = asked.model or (SMOLLM2 if asked.scheme == "fp8" else TINY)
    python = environments.interpreter("llm_compressor").path
    # Workers let waiting threads sleep, which saves most of the time on a busy machine: both do here.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    rows: dict[str, list[Cost]] = {"mopt": [], "library": []}
    for _ in range(asked.runs):
        for name in rows:
            with tempfile.TemporaryDirectory() as place:
                command = commands(model, Path(place), python, asked.scheme)[name]
                rows[name].append(measured(command))
    show(rows, model)


def commands(model: Path, place: Path, python: Path, scheme: str) -> dict[str, list[str | Path]]:
    out, texts = place / "out", place / "texts.jsonl"
    mopt: list[str | Path] = [sys.executable, "-m", "model_optimizer", "quantize", model, "--out", out]
    library: list[str | Path] = [python, "-P", "-c", FREE if scheme == "fp8" else CALIBRATED, model, out]
    if scheme == "fp8":
        return {"mopt": [*mopt, "--scheme", "fp8"], "library": library}
    shutil.copyfile(TINY / "heldout.jsonl", texts)
    lines = texts.read_text().splitlines()[:COUNT]
    texts.write_text("".join(f"{line}\n" for line in lines))
    data = ["--calibration", texts, "--samples", str(COUNT), "--calibration-length", str(LENGTH)]
    if scheme == "awq-int4":
        data += ["--search-steps", str(STEPS)]
    return {
        "mopt": [*mopt, "--scheme", scheme, *data],
        "library": [*library, texts, str(COUNT), str(LENGTH), scheme, str(STEPS)],
    }


def show(rows: dict[str, list[Cost]], model: Path) -> None:
    largest = max(path.stat().st_size for path in model.glob("*.safetensors"))
    print(f"{model.name}, largest file of weights {largest / 1e6:.0f} MB, {len(rows['mopt'])} runs in turn\n")
    print("           wall s (best, median)   processor s (best)   peak MB (median)")
    best: dict[str, tuple[float, float, float]] = {}
    for name, costs in rows.items():
        walls, memory = [c.wall_s for c in costs], statistics.median(c.memory_bytes for c in costs)
        best[name] = (min(walls), min(c.cpu_s for c in costs), memory)
        print(
            f"{name:10} {min(walls):8.1f} {statistics.median(walls):8.1f} {best[name][1]:20.1f} "
            f"{memory / 1e6:20.0f}"
        )
    ratios = [mine / theirs for mine, theirs in zip(best["mopt"], best["library"], strict=True)]
    print(f"\nratio      {ratios[0]:8.2f} {'':8} {ratios[1]:20.2f} {ratios[2]:20.2f}")
    print(f"peak / largest file of weights: {best['mopt'][2] / largest:.2f}")


if __name__ == "__main__":
    main()

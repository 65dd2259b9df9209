"""Quantize one model in every scheme on a machine with a GPU, and measure what real vLLM makes of each.

    python3 tools/quantize_and_measure.py MODEL --texts heldout.jsonl --out FOLDER [--also CHECKPOINT...]

For machines without a network and without `mopt`: it runs the workers of this repository and vLLM, each by the
interpreter that holds its packages (--quantizer, with --packages on its path, and --engine), several at once.
MODEL may be a GGUF file, which transformers turns into a checkpoint first. Every checkpoint is measured as soon
as it is made; FOLDER/quality.json holds the rows of `measure_quantized.py` and is written as they come. With
--also, checkpoints that exist already are measured beside a reference of their own (`--also-reference`) into
FOLDER/quality-also.json. What does not end in --seconds is ended by its own id and is a row that says so.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from measure_quantized import ENVIRONMENT, SETTLE_S, Table

ROOT = Path(__file__).resolve().parents[1]
WORKERS = ROOT / "src/model_optimizer/workers"
FREE = {
    "fp8": ("FP8_DYNAMIC", 0),
    "int8-weight": ("W8A16", 32),
    "int4-rtn": ("W4A16", 32),
    "mxfp4": ("MXFP4A16", 32),
    "fp8-block": ("FP8_BLOCK", 0),
}
"""Preset of compressed-tensors and group size, as the tools in src/model_optimizer/quantize ask for them."""
STATISTICS = {"dampening": 1.0, "longest_token": 3, "tokens_per_column": 8}
"""Of GPTQ: facts/decisions/rules.toml."""
CALIBRATED = {
    "fp8-static": {"method": "static", "preset": "FP8", "group_size": 0},
    "fp8-kv": {"method": "static", "preset": "FP8_DYNAMIC", "group_size": 0, "kv": True},
    "nvfp4": {"method": "static", "preset": "NVFP4", "group_size": 16},
    "int8": {"method": "smoothquant", "preset": "W8A8", "group_size": 0, "statistics": STATISTICS},
    "gptq-int4": {
        "method": "gptq",
        "preset": "W4A16",
        "group_size": 128,
        "symmetric": None,
        "statistics": STATISTICS,
    },
    "awq-int4": {
        "method": "awq",
        "preset": "W4A16",
        "group_size": 128,
        "symmetric": False,
        "search_steps": 20,
    },
}


@dataclass(slots=True)
class Chain:
    """Commands that run one after the other; `folder` is what the last one measures."""

    folder: Path
    table: Table
    commands: list[tuple[list[str], dict[str, str]]]
    running: subprocess.Popen[bytes] | None = field(default=None)

    def go_on(self, left: float) -> bool:
        """Start the next command when the last has ended. False once nothing is left to do."""
        if self.running is not None and self.running.poll() is None:
            if left > 0:
                return True
            self.running.kill()
            self.running.wait()
            self._say(f"Error: ended after the time that was given, at {self.running.args[1:4]}")
            self.commands = []
        failed = self.running is not None and self.running.returncode != 0
        self.running = None
        if failed or not self.commands or left < SETTLE_S:
            if self.commands and not failed:
                self._say("Error: no time left")
            return False
        words, environment = self.commands.pop(0)
        with self.table.log(self.folder.name).open("ab") as log:
            self.running = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        return True

    def _say(self, text: str) -> None:
        with self.table.log(self.folder.name).open("a") as log:
            log.write(f"\n{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/quantize-and-measure"))
    parser.add_argument("--quantizer", default=sys.executable)
    parser.add_argument("--packages", type=Path, help="a folder for the path of the quantizer")
    parser.add_argument("--engine", default=sys.executable)
    parser.add_argument("--schemes", default=",".join((*FREE, *CALIBRATED)))
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--also", nargs="*", type=Path, default=[])
    parser.add_argument("--also-reference", type=Path)
    parser.add_argument("--also-texts", type=Path)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=280)
    run(parser.parse_args())


def run(arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    end = began + arguments.seconds
    for place in (arguments.work, arguments.out):
        place.mkdir(parents=True, exist_ok=True)
    waiting = [*chains(arguments, checkpoint(arguments)), *others(arguments)]
    running: list[Chain] = []
    while waiting or running:
        while waiting and len(running) < arguments.at_once:
            running.append(waiting.pop(0))
        for chain in list(running):
            if not chain.go_on(end - time.monotonic()):
                running.remove(chain)
                chain.table.add(chain.folder)
                keep_logs(arguments)
                print(f"{time.monotonic() - began:.0f} s: {chain.folder.name}", file=sys.stderr, flush=True)
        time.sleep(0.2)


def checkpoint(arguments: argparse.Namespace) -> Path:
    """The original as safetensors, in the folder `bf16`."""
    folder = arguments.work / "bf16"
    if folder.exists():
        return folder
    if arguments.model.suffix != ".gguf":
        folder.symlink_to(arguments.model.resolve())
        return folder
    script = (ROOT / "examples/fetch_smollm2.py").read_text().split('"""')[3]
    words = [arguments.quantizer, "-P", "-c", script, str(arguments.model), str(folder)]
    subprocess.run(words, check=True, env=packages(arguments))
    return folder


def packages(arguments: argparse.Namespace) -> dict[str, str]:
    path = str(arguments.packages or "")
    threads = str(max(1, (os.cpu_count() or 1) // arguments.at_once))
    return ENVIRONMENT | {"PYTHONPATH": path, "OMP_NUM_THREADS": threads}


def chains(arguments: argparse.Namespace, original: Path) -> list[Chain]:
    table = Table(arguments.out / "quality.json", fresh(arguments.work / "answers"), original.name)
    found = [Chain(original, table, [measuring(arguments, original, table, arguments.texts)])]
    for scheme in arguments.schemes.split(","):
        folder = arguments.work / scheme
        commands = [measuring(arguments, folder, table, arguments.texts)]
        if not folder.exists():
            commands.insert(0, quantizing(arguments, original, scheme, folder))
        found.append(Chain(folder, table, commands))
    return found


def others(arguments: argparse.Namespace) -> list[Chain]:
    if not arguments.also:
        return []
    reference, texts = arguments.also_reference, arguments.also_texts or arguments.texts
    place = fresh(arguments.work / "answers-also")
    table = Table(arguments.out / "quality-also.json", place, reference.name)
    folders = [reference, *arguments.also]
    return [Chain(folder, table, [measuring(arguments, folder, table, texts)]) for folder in folders]


def fresh(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    for path in place.iterdir():
        path.unlink()
    return place


def measuring(
    arguments: argparse.Namespace, folder: Path, table: Table, texts: Path
) -> tuple[list[str], dict[str, str]]:
    words = [arguments.engine, str(ROOT / "tools/measure_quantized.py"), str(folder), "--texts", str(texts)]
    words += ["--most", str(arguments.most), "--one", str(table.answers(folder.name))]
    return words, ENVIRONMENT


def quantizing(
    arguments: argparse.Namespace, original: Path, scheme: str, folder: Path
) -> tuple[list[str], dict[str, str]]:
    asked = {
        "source": str(original),
        "out": str(folder),
        "scheme": scheme.replace("-", "_"),
        "task": "generate",
        "exclude": [],
        "work": str(arguments.work / f"{scheme}.work"),
    }
    if scheme in FREE:
        worker, (preset, group) = "quantize_free", FREE[scheme]
        asked |= {"preset": preset, "group_size": group}
    else:
        worker = "quantize_calibrated"
        calibration = {"count": arguments.samples, "length": arguments.length, "samples": None}
        asked |= {"calibration": calibration, **CALIBRATED[scheme]}
    request = arguments.work / f"{scheme}.request.json"
    request.write_text(json.dumps(asked))
    answer = request.with_name(f"{scheme}.result.json")
    words = [arguments.quantizer, "-P", str(WORKERS / f"{worker}.py"), str(request), str(answer)]
    return words, packages(arguments)


def keep_logs(arguments: argparse.Namespace) -> None:
    """The end of every log and every worker's answer, in one file beside the results."""
    parts = []
    for path in sorted(arguments.work.glob("answers*/*.log")):
        parts.append(f"===== {path.name}\n{path.read_text(errors='replace')[-6000:]}")
    for path in sorted(arguments.work.glob("*.result.json")):
        parts.append(f"===== {path.name}\n{path.read_text(errors='replace')[:3000]}")
    (arguments.out / "logs.txt").write_text("\n".join(parts))


if __name__ == "__main__":
    main()

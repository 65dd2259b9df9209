"""Load quantized checkpoints of one small model with real vLLM, and compare their predictions.

    python3 tools/measure_quantized.py FOLDER... --reference bf16 --texts heldout.jsonl --out RESULTS.json

Runs where vLLM is on the path; needs nothing of ours. Each FOLDER is loaded by a process of its own, a few at a
time: answers are compared, not times. The texts are fed whole (teacher forcing) and vLLM gives the
log-probabilities of the 20 likeliest tokens at each position. A row says, with 95 % intervals over texts, how
much of the reference's perplexity is left (`recovery`), how often the likeliest token is the same where the
reference is clear about it (`top1`, near-ties apart), and the divergence over the reference's 20 tokens, the
rest taken as one (`kl`); and what the log says of kernels, and bytes of weights. A checkpoint that does not load
is a row with its error. Rows are written as they come.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOP = 20
NEAR_TIE = 0.05
"""Nats between the two likeliest tokens below which their order says little, as in `mopt verify`."""
SETTLE_S = 40
"""Nothing is started with less time than this left."""
KERNEL = re.compile(
    r"(?:Using|Selected) .*|.*(?:Marlin|CUTLASS|DeepGEMM|Machete|kv_cache_dtype|GPU KV cache size).*"
)
ENVIRONMENT = os.environ | {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process an engine, so that ending it ends all of it
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--reference", default="bf16", help="name of the folder that is the original")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--most", type=int, default=10_000, help="texts at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        answers = predict(arguments.folders[0], texts(arguments.texts)[: arguments.most])
        arguments.one.write_text(json.dumps(answers))
        return
    with tempfile.TemporaryDirectory() as place:
        table = Table(arguments.out, Path(place), arguments.reference)
        run_all(arguments, table, time.monotonic() + arguments.seconds)


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines() if line.strip()]


def predict(folder: Path, wanted: list[str]) -> list[list[list[list[float]]]]:
    """For each text and position: [token, logprob] of the text's own token, then of the likeliest ones."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=2048,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=1 << 30,  # named, so that engines beside one another need not measure memory
        enforce_eager=True,
        enable_prefix_caching=False,
        max_logprobs=TOP,
    )
    asked = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=TOP, detokenize=False)
    found = []
    for output in engine.generate(wanted, asked, use_tqdm=False):
        rows = []
        for token, row in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
            likely = sorted(row.items(), key=lambda item: item[1].rank)[:TOP]
            rows.append([[token, row[token].logprob], *([t, p.logprob] for t, p in likely)])
        found.append(rows)
    return found


def command(folder: Path, table: "Table", texts: Path, most: int) -> list[str]:
    """What runs one checkpoint and leaves its answers where the table looks."""
    words = [sys.executable, __file__, str(folder), "--texts", str(texts), "--most", str(most)]
    return [*words, "--one", str(table.answers(folder.name))]


def run_all(arguments: argparse.Namespace, table: "Table", end: float) -> None:
    """A process a folder, so many at once; those that are not done in time are ended by their own id."""
    waiting, running = list(arguments.folders), {}
    while waiting or running:
        while waiting and len(running) < arguments.at_once and time.monotonic() < end - SETTLE_S:
            folder = waiting.pop(0)
            words = command(folder, table, arguments.texts, arguments.most)
            with table.log(folder.name).open("w") as out:
                running[folder] = subprocess.Popen(words, stdout=out, stderr=out, env=ENVIRONMENT)
        for folder, process in list(running.items()):
            if process.poll() is None and time.monotonic() < end:
                continue
            if process.poll() is None:
                process.kill()
            process.wait()
            del running[folder]
            table.add(folder)
        if waiting and time.monotonic() >= end - SETTLE_S and not running:
            for folder in waiting:
                table.add(folder)
            return
        time.sleep(0.2)


class Table:
    """Rows of the results, written down whenever one is added. Answers and logs lie in the folder `place`."""

    def __init__(self, out: Path, place: Path, reference: str) -> None:
        self._out = out
        self._place = place
        self._reference = reference
        self._rows: dict[Path, dict[str, Any]] = {}

    def answers(self, name: str) -> Path:
        return self._place / f"{name}.json"

    def log(self, name: str) -> Path:
        return self._place / f"{name}.log"

    def add(self, folder: Path) -> None:
        """What is known of a checkpoint that has run, ended or will not be started."""
        self._rows[folder] = {}
        for one, row in self._rows.items():
            if "recovery" not in row:  # the reference may come later than others
                self._rows[one] = self._row(one)
        rows = list(self._rows.values())
        beside = self._out.with_name(f"{self._out.name}.part")
        beside.write_text(json.dumps(rows, indent=1))
        beside.replace(self._out)
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "kernels"}), flush=True)

    def _row(self, folder: Path) -> dict[str, Any]:
        name = folder.name
        row: dict[str, Any] = {
            "name": name,
            "bytes": sum(p.stat().st_size for p in folder.glob("*.safetensors")),
        }
        log = self.log(name).read_text(errors="replace") if self.log(name).exists() else "not run in time"
        row["kernels"] = sorted({m.group(0)[-160:] for m in map(KERNEL.search, log.splitlines()) if m})[:12]
        if not self.answers(name).exists():
            errors = [line for line in log.splitlines() if re.search(r"Error|error:|not support", line)]
            row["error"] = errors[-6:] or log.splitlines()[-6:]
        elif self.answers(self._reference).exists():
            reference, candidate = (json.loads(self.answers(n).read_text()) for n in (self._reference, name))
            row |= beside(reference, candidate)
        return row


def beside(reference: list, candidate: list) -> dict[str, Any]:
    """What two models say of the same positions, summed over each text: texts are what is independent."""
    sums = [_of_text(a, b) for a, b in zip(reference, candidate, strict=True)]
    count = [s["positions"] for s in sums]
    loss = ratio([s["loss"] for s in sums], count)
    lost = ratio([s["lost"] for s in sums], count)
    return {
        "texts": len(sums),
        "positions": sum(count),
        "perplexity": math.exp(loss[0]),
        "recovery": [math.exp(-lost[0]), math.exp(-lost[2]), math.exp(-lost[1])],
        "top1": ratio([s["same_clear"] for s in sums], [s["clear"] for s in sums]),
        "top1_near_ties": ratio([s["same_tied"] for s in sums], [s["tied"] for s in sums]),
        "kl": ratio([s["kl"] for s in sums], count),
    }


def _of_text(reference: list, candidate: list) -> dict[str, float]:
    found = dict.fromkeys(
        ("positions", "loss", "lost", "clear", "same_clear", "tied", "same_tied", "kl"), 0.0
    )
    for x, y in zip(reference, candidate, strict=True):
        kind = "tied" if x[1][1] - x[2][1] < NEAR_TIE else "clear"
        found["positions"] += 1
        found["loss"] -= y[0][1]
        found["lost"] += x[0][1] - y[0][1]
        found[kind] += 1
        found[f"same_{kind}"] += x[1][0] == y[1][0]
        found["kl"] += divergence(x[1:], y[1:])
    return found


def ratio(above: list[float], below: list[float]) -> list[float]:
    """A mean over positions with the ends of its 95 % interval over texts."""
    whole = sum(below)
    if not whole:
        return [math.nan] * 3
    middle = sum(above) / whole
    spread = sum((a - middle * b) ** 2 for a, b in zip(above, below, strict=True))
    reach = 1.96 * math.sqrt(spread * len(below) / max(len(below) - 1, 1)) / whole
    return [middle, middle - reach, middle + reach]


def divergence(reference: list, candidate: list) -> float:
    """KL divergence in nats over the reference's tokens that both list and one bucket for all others, which
    makes it a lower bound."""
    found = {int(token): value for token, value in candidate}
    listed = [(value, found[int(token)]) for token, value in reference if int(token) in found]
    rest_p = 1 - sum(math.exp(a) for a, _ in listed)
    rest_q = 1 - sum(math.exp(b) for _, b in listed)
    total = sum(math.exp(a) * (a - b) for a, b in listed)
    rest = rest_p * math.log(rest_p / max(rest_q, 1e-9)) if rest_p > 1e-9 else 0.0
    return max(total + rest, 0.0)


if __name__ == "__main__":
    main()

"""Load quantized checkpoints of one small model with real vLLM, and compare their predictions.

    python3 tools/measure_quantized.py FOLDER... --reference bf16 --texts heldout.jsonl --out RESULTS.json

Runs on a GPU machine with vLLM on its path; needs nothing of ours. Each FOLDER is loaded by a process of its
own, a few at a time: answers are compared, not times. The texts are fed whole (teacher forcing) and vLLM
gives the log-probabilities of the 20 likeliest tokens at each position. A row holds the mean negative
log-likelihood and its difference to the reference's with a 95 % interval over texts, how often the likeliest
token is the same, the divergence over the reference's 20 tokens (the rest taken as one), what the log says of
kernels, and bytes on disk. A checkpoint that does not load is a row with its error.
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

TOP = 20
KERNEL = re.compile(r"Using .*|.*(?:Marlin|CUTLASS|DeepGEMM|Machete|kv_cache_dtype|GPU KV cache size).*")
ENVIRONMENT = os.environ | {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--reference", default="bf16", help="name of the folder that is the original")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        answers = predict(arguments.folders[0], texts(arguments.texts), share=0.8 / arguments.at_once)
        arguments.one.write_text(json.dumps(answers))
        return
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as place:
        logs = run_all(arguments, Path(place), end)
        rows = compare(arguments, Path(place), logs)
    arguments.out.write_text(json.dumps(rows, indent=1))
    for row in rows:
        print(json.dumps({k: v for k, v in row.items() if k != "log"}), flush=True)


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines() if line.strip()]


def predict(folder: Path, wanted: list[str], share: float) -> list[list[list[list[float]]]]:
    """For each text and position: [token, logprob] of the text's own token, then of the likeliest ones."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=2048,
        gpu_memory_utilization=share,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_logprobs=TOP,
    )
    asked = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=TOP)
    found = []
    for output in engine.generate(wanted, asked, use_tqdm=False):
        rows = []
        for token, row in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
            likely = sorted(row.items(), key=lambda item: item[1].rank)[:TOP]
            rows.append([[token, row[token].logprob], *([t, p.logprob] for t, p in likely)])
        found.append(rows)
    return found


def run_all(arguments: argparse.Namespace, place: Path, end: float) -> dict[str, str]:
    """A process a folder, so many at once; those that are not done in time are ended by their own id."""
    waiting, running, logs = list(arguments.folders), {}, {}
    while waiting or running:
        while waiting and len(running) < arguments.at_once and time.monotonic() < end - 40:
            folder = waiting.pop(0)
            log = place / f"{folder.name}.log"
            words = [sys.executable, __file__, str(folder), "--texts", str(arguments.texts)]
            words += ["--one", str(place / f"{folder.name}.json"), "--at-once", str(arguments.at_once)]
            with log.open("w") as out:
                running[folder.name] = subprocess.Popen(words, stdout=out, stderr=out, env=ENVIRONMENT)
        for name, process in list(running.items()):
            if process.poll() is None and time.monotonic() < end:
                continue
            if process.poll() is None:
                process.kill()
            process.wait()
            del running[name]
            logs[name] = (place / f"{name}.log").read_text(errors="replace")
            print(f"{name}: exit {process.returncode}", file=sys.stderr, flush=True)
        if waiting and time.monotonic() >= end - 40 and not running:
            break
        time.sleep(0.2)
    return logs


def compare(arguments: argparse.Namespace, place: Path, logs: dict[str, str]) -> list[dict]:
    rows = []
    held = place / f"{arguments.reference}.json"
    reference = json.loads(held.read_text()) if held.exists() else None
    for folder in arguments.folders:
        row = {"name": folder.name, "bytes": sum(p.stat().st_size for p in folder.glob("*.safetensors"))}
        log = logs.get(folder.name, "not started in time")
        row["kernels"] = sorted({m.group(0)[-160:] for m in map(KERNEL.search, log.splitlines()) if m})[:12]
        answers = place / f"{folder.name}.json"
        if not answers.exists():
            errors = [line for line in log.splitlines() if re.search(r"Error|error:|not support", line)]
            row["error"] = errors[-6:] or log.splitlines()[-6:]
        elif reference is not None:
            row |= beside(reference, json.loads(answers.read_text()))
        rows.append(row)
    return rows


def beside(reference: list, candidate: list) -> dict[str, float]:
    """Means over positions; the interval of the difference is over texts, which are independent."""
    differences, likelihoods, same, diverged, positions = [], [], 0, 0.0, 0
    for a, b in zip(reference, candidate, strict=True):
        gap = 0.0
        for x, y in zip(a, b, strict=True):
            likelihoods.append(-y[0][1])
            gap += x[0][1] - y[0][1]
            same += x[1][0] == y[1][0]
            diverged += divergence(x[1:], y[1:])
            positions += 1
        differences.append(gap / max(len(a), 1))
    middle = sum(differences) / len(differences)
    spread = math.sqrt(sum((d - middle) ** 2 for d in differences) / (len(differences) - 1))
    reach = 1.96 * spread / math.sqrt(len(differences))
    return {
        "positions": positions,
        "nll": sum(likelihoods) / positions,
        "nll_more": middle,
        "nll_more_low": middle - reach,
        "nll_more_high": middle + reach,
        "top1_same": same / positions,
        "kl_top20": diverged / positions,
    }


def divergence(p: list, q: list) -> float:
    """KL(p || q) over p's tokens; what q does not list has at most its smallest listed probability."""
    found = {int(token): value for token, value in q}
    least = min(value for _, value in q)
    total, p_rest, q_rest = 0.0, 1.0, 1.0
    for token, value in p:
        other = found.get(int(token), least)
        total += math.exp(value) * (value - other)
        p_rest -= math.exp(value)
        q_rest -= math.exp(other)
    if p_rest > 1e-9:
        total += p_rest * math.log(p_rest / max(q_rest, 1e-9))
    return max(total, 0.0)


if __name__ == "__main__":
    main()

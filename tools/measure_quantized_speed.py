"""Tokens a second of checkpoints of one model behind real vLLM, in turn, so that other work hits all alike.

    python3 tools/measure_quantized_speed.py FOLDER... [--rounds 5] --out RESULTS.json

The first folder is the original. Each is loaded by a process of its own; then they generate one after the other,
round by round, the same number of tokens for the same prompts, while all others wait. A row holds seconds and
processor seconds of each round, and how many times as fast as the original it was: the median over rounds of the
ratio within a round, with the least and the most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROMPTS, TOKENS = 8, 32
ENVIRONMENT = os.environ | {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        generate(arguments.folders[0])
        return
    processes = {folder.name: start(folder) for folder in arguments.folders}
    try:
        for name, process in processes.items():
            answer(process)
            print(f"{name} is loaded", file=sys.stderr, flush=True)
        rounds = [
            {name: ask(process) for name, process in processes.items()} for _ in range(arguments.rounds)
        ]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    rows = [row(name, rounds, first=arguments.folders[0].name) for name in processes]
    arguments.out.write_text(json.dumps(rows, indent=1))
    for found in rows:
        print(json.dumps(found), flush=True)


def start(folder: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, __file__, str(folder), "--one"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    )


def ask(process: "subprocess.Popen[str]") -> dict[str, float]:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return answer(process)


def answer(process: "subprocess.Popen[str]") -> dict[str, float]:
    """The next line of its own; vLLM writes others there too."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ANSWER "):
            return json.loads(line.removeprefix("ANSWER "))
    raise SystemExit(f"{process.args} ended with {process.wait()}")


def generate(folder: Path) -> None:
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=512,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=1 << 29,
        enforce_eager=True,
    )
    asked = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
    prompts = [f"Tell me {number} things about the sea." for number in range(PROMPTS)]
    engine.generate(prompts, asked, use_tqdm=False)
    print("ANSWER {}", flush=True)
    for _line in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        engine.generate(prompts, asked, use_tqdm=False)
        found = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - used}
        print(f"ANSWER {json.dumps(found)}", flush=True)


def row(name: str, rounds: list[dict[str, dict[str, float]]], *, first: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "tokens": PROMPTS * TOKENS}
    for kind in ("seconds", "processor_seconds"):
        ratios = sorted(found[first][kind] / found[name][kind] for found in rounds)
        made[kind] = [round(found[name][kind], 3) for found in rounds]
        made[f"times_as_fast_by_{kind}"] = [
            round(x, 3) for x in (statistics.median(ratios), ratios[0], ratios[-1])
        ]
    return made


if __name__ == "__main__":
    main()

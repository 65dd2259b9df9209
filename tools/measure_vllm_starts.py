"""Start real vLLM once a line of a JSON-lines file, with dummy weights, and keep what it says of its memory.

    python3 tools/measure_vllm_starts.py STARTS.jsonl --out RESULTS.jsonl [--seconds 560]

Runs on a GPU machine with vLLM on its path; needs nothing of ours. A line of STARTS holds

    {"id": "qwen3-8b", "model": "Qwen/Qwen3-8B", "config": {...}, "flags": ["--max-model-len", "8192"],
     "loads": [[1024, 128, 1, 4]]}

where a load is prompt tokens, output tokens, concurrency and requests, and may be left out. Prompts are
random token ids, so no tokenizer is needed. A result holds every log line that speaks of memory, tokens or
graphs, the numbers read from them, seconds to ready, and per load the times of each request. Lines of STARTS
whose id is in RESULTS already are skipped, so that a killed run goes on where it stopped; one that would
not end in time is not begun. Each server has a process group of its own and is stopped by its id.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PORT = 8123
ENVIRONMENT = os.environ | {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_LOGGING_LEVEL": "DEBUG",
}
KEPT = re.compile(
    r"GiB|KV cache|[Gg]raph|max_num|block size|attention backend|Error|Chunked prefill|Using \w+ "
)
NUMBERS = {
    "kv_cache_tokens": r"KV cache size: ([\d,]+) tokens",
    "available_kv_cache_gib": r"Available KV cache memory: ([-\d.]+) GiB",
    "model_gib": r"Model loading took ([\d.]+) GiB",
    "cuda_graph_gib": r"Graph capturing finished in \d+ secs, took ([-\d.]+) GiB",
    "cuda_graph_estimate_gib": r"Estimated CUDA graph memory: ([-\d.]+) GiB",
    "activation_gib": r"torch peak memory increase: ([-\d.]+)GiB",
    "non_torch_gib": r"non-torch forward increase memory: ([-\d.]+)GiB",
    "weights_gib": r"weights memory: ([-\d.]+)GiB",
    "max_concurrency": r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
    "initial_free_gib": r"Initial free memory: ([\d.]+) GiB",
    "requested_gib": r"Requested memory: [\d.]+ \(util\), ([\d.]+) GiB",
    "estimated_max_model_len": r"estimated maximum model length is (\d+)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("starts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--longest", type=float, default=110, help="seconds that a start may take")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    done = _ids(arguments.out)
    for line in arguments.starts.read_text().splitlines():
        start = json.loads(line)
        if start["id"] in done:
            continue
        if time.monotonic() + start.get("longest", arguments.longest) > end:
            print(f"{start['id']}: no time left", flush=True)
            continue
        result = measure(start, end)
        with arguments.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
        short = {k: v for k, v in result.items() if k not in ("lines", "config", "loads")}
        print(json.dumps(short), flush=True)
        for one in result.get("loads", []):
            print("   ", json.dumps({k: v for k, v in one.items() if k != "requests_ms"}), flush=True)


def _ids(path: Path) -> set[str]:
    return {json.loads(line)["id"] for line in path.read_text().splitlines()} if path.exists() else set()


def measure(start: dict, end: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(start["config"]))
        log = Path(folder, "log")
        command = [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder, "--load-format", "dummy",
            "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(PORT), "--served-model-name", "m",
            *start.get("flags", []),
        ]  # fmt: skip
        began = time.monotonic()
        with log.open("w") as out:
            server = subprocess.Popen(
                command, stdout=out, stderr=out, env=ENVIRONMENT, start_new_session=True
            )
        try:
            ready = wait(server, min(end, began + 240))
            result = {
                **{key: start[key] for key in ("id", "model", "flags") if key in start},
                "ready": ready,
                "seconds": round(time.monotonic() - began, 1),
                **numbers(log.read_text(errors="replace")),
            }
            if ready:
                vocabulary = start["config"].get("vocab_size", 1000)
                result["loads"] = [asyncio.run(load(vocabulary, *one)) for one in start.get("loads", [])]
            lines = log.read_text(errors="replace").replace(folder, "MODEL").splitlines()
            result["lines"] = [line[-400:] for line in lines if KEPT.search(line)][:120]
            if not ready:
                result["log_end"] = [line[-400:] for line in lines[-12:]]
            return result
        finally:
            stop(server)


def numbers(text: str) -> dict:
    found = {name: re.findall(pattern, text) for name, pattern in NUMBERS.items()}
    return {name: float(values[-1].replace(",", "")) for name, values in found.items() if values}


def wait(server: subprocess.Popen, end: float) -> bool:
    while server.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1)
            return True
        except OSError:
            time.sleep(0.3)
    return False


def stop(server: subprocess.Popen) -> None:
    for sign, patience in ((signal.SIGINT, 10), (signal.SIGKILL, 10)):
        if server.poll() is not None:
            break
        os.killpg(server.pid, sign)
        try:
            server.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    time.sleep(1.0)


async def load(vocabulary: int, prompt: int, output: int, concurrency: int, requests: int) -> dict:
    """A closed loop. Times in milliseconds: first token and time per output token of each request."""
    import aiohttp

    queue, dice = iter(range(requests)), random.Random(time.time_ns())
    seen: list[tuple[float, float]] = []
    body = {"model": "m", "max_tokens": output, "temperature": 0, "ignore_eos": True, "stream": True}
    body["return_token_ids"] = True

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in queue:
            ids = [dice.randrange(3, vocabulary - 3) for _ in range(prompt)]
            sent = time.perf_counter()
            first = last = 0.0
            async with session.post(
                f"http://127.0.0.1:{PORT}/v1/completions", json=body | {"prompt": ids}
            ) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    if b'"choices"' in chunk:
                        last = time.perf_counter()
                        first = first or last
            seen.append(((first - sent) * 1e3, (last - first) * 1e3 / max(output - 1, 1)))

    began = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        await asyncio.gather(*(client(session) for _ in range(concurrency)))
    wall = time.perf_counter() - began
    ttft, tpot = (sorted(values) for values in zip(*seen, strict=True))
    return {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "concurrency": concurrency,
        "requests": requests,
        "ttft_ms_p50": round(ttft[len(ttft) // 2], 2),
        "ttft_ms_p99": round(ttft[min(len(ttft) - 1, int(0.99 * len(ttft)))], 2),
        "tpot_ms_p50": round(tpot[len(tpot) // 2], 3),
        "tpot_ms_mean": round(sum(tpot) / len(tpot), 3),
        "output_tokens_per_s": round(requests * output / wall, 1),
        "wall_s": round(wall, 2),
    }


if __name__ == "__main__":
    main()

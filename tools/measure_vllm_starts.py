"""Start real vLLM once a line of a JSON-lines file, with dummy weights, and keep what it says of its memory.

    python3 tools/measure_vllm_starts.py STARTS.jsonl --out RESULTS.jsonl [--seconds 560]

Runs on a GPU machine with vLLM on its path; needs nothing of ours. A line of STARTS holds

    {"id": "qwen3-8b", "model": "Qwen/Qwen3-8B", "config": {...}, "flags": ["--max-model-len", "8192"],
     "loads": [[1024, 128, 1, 4]]}

where a load is prompt tokens, output tokens, concurrency and requests, and may be left out. One may also be
an object with `prompt_tokens`, `output_tokens` (a number, or [least, most] drawn evenly), `requests` and
`concurrency` or `qps` (an open loop, Poisson), `shared_prefix` (tokens that all prompts begin with) and
`embed` (true: /v1/embeddings). `env` of a line is added to the environment. Prompts are random token ids,
so no tokenizer is needed; servers of embeddings want one all the same, and get one of two words. A result holds every log line that speaks of memory, tokens or
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
RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
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
        embeds = any(isinstance(one, dict) and one.get("embed") for one in start.get("loads", []))
        if embeds:
            write_tokenizer(Path(folder))
        log = Path(folder, "log")
        command = [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder, "--load-format", "dummy",
            *([] if embeds else ["--skip-tokenizer-init"]), "--host", "127.0.0.1", "--port", str(PORT), "--served-model-name", "m",
            *start.get("flags", []),
        ]  # fmt: skip
        began = time.monotonic()
        with log.open("w") as out:
            server = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                env=ENVIRONMENT | start.get("env", {}),
                start_new_session=True,
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
                result["loads"] = [run(vocabulary, one, end) for one in start.get("loads", [])]
            lines = log.read_text(errors="replace").replace(folder, "MODEL").splitlines()
            result["lines"] = [line[-400:] for line in lines if KEPT.search(line)][:120]
            if not ready:
                result["log_end"] = [line[-400:] for line in lines[-12:]]
            return result
        finally:
            stop(server)


def write_tokenizer(folder: Path) -> None:
    """The least that a server of embeddings loads; nothing is ever tokenized with it."""
    words = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": words}
    folder.joinpath("tokenizer.json").write_text(json.dumps(whole))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(kind))


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


def run(vocabulary: int, asked: list | dict, end: float) -> dict:
    """One load; what went wrong with it is its result, and the loads after it still run."""
    if isinstance(asked, list):
        names = ("prompt_tokens", "output_tokens", "concurrency", "requests")
        asked = dict(zip(names, asked, strict=True))
    if time.monotonic() > end:
        return {**asked, "error": "no time left"}
    try:
        return asyncio.run(load(vocabulary, asked))
    except Exception as error:  # noqa: BLE001 - a server may fail in any way
        return {**asked, "error": f"{type(error).__name__}: {error}"[:300]}


class Sender:
    """Sends requests of one load and keeps their times in seconds: due, sent, first, last, output tokens."""

    def __init__(self, session, vocabulary: int, asked: dict) -> None:
        self.session, self.vocabulary, self.asked = session, vocabulary, asked
        self.dice = random.Random(time.time_ns())
        self.shared = self._ids(asked.get("shared_prefix", 0))
        self.seen: list[tuple[float, float, float, float, int]] = []

    def _ids(self, count: int) -> list[int]:
        return [self.dice.randrange(3, self.vocabulary - 3) for _ in range(count)]

    def bodies(self) -> list[tuple[dict, int]]:
        """All requests of the load, made before it begins, with the output tokens of each."""
        asked, found = self.asked, []
        for _ in range(asked["requests"]):
            ids = self.shared + self._ids(asked["prompt_tokens"] - len(self.shared))
            if asked.get("embed"):
                found.append(({"model": "m", "input": ids}, 0))
                continue
            output = asked["output_tokens"]
            output = self.dice.randint(*output) if isinstance(output, list) else output
            body = {"model": "m", "prompt": ids, "max_tokens": output, "temperature": 0}
            body |= {"ignore_eos": True, "stream": True, "return_token_ids": True}
            found.append((body, output))
        return found

    async def send(self, body: dict, output: int, due: float | None = None) -> None:
        sent = time.perf_counter()
        first = last = 0.0
        path = "embeddings" if self.asked.get("embed") else "completions"
        async with self.session.post(f"http://127.0.0.1:{PORT}/v1/{path}", json=body) as answer:
            answer.raise_for_status()
            if self.asked.get("embed"):
                await answer.read()
                first = last = time.perf_counter()
            else:
                async for chunk in answer.content.iter_any():
                    if b'"choices"' in chunk:
                        last = time.perf_counter()
                        first = first or last
        self.seen.append((due or sent, sent, first, last, output))

    async def closed(self, clients: int) -> None:
        queue = iter(self.bodies())

        async def client() -> None:
            for body, output in queue:
                await self.send(body, output)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def opened(self, qps: float) -> None:
        due, tasks, bodies = time.perf_counter(), [], self.bodies()
        for body, output in bodies:
            due = max(due + self.dice.expovariate(qps), 0.0)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.send(body, output, due)))
        await asyncio.gather(*tasks)


async def load(vocabulary: int, asked: dict) -> dict:
    """Times in milliseconds: first token from when a request was due, time per output token, whole request.
    Rates are over the time from the first request to the last answer."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        sender = Sender(session, vocabulary, asked)
        if asked.get("qps"):
            await sender.opened(asked["qps"])
        else:
            await sender.closed(asked["concurrency"])
    seen = sender.seen
    wall = max(last for _, _, _, last, _ in seen) - min(sent for _, sent, _, _, _ in seen)
    found = {**asked, "wall_s": round(wall, 3), "requests_per_s": round(len(seen) / wall, 3)}
    found |= spread("e2e_ms", [(last - due) * 1e3 for due, _, _, last, _ in seen])
    if asked.get("embed"):
        return found
    found |= spread("ttft_ms", [(first - due) * 1e3 for due, _, first, _, _ in seen])
    found |= spread("tpot_ms", [(last - first) * 1e3 / max(n - 1, 1) for _, _, first, last, n in seen])
    found["output_tokens_per_s"] = round(sum(n for *_, n in seen) / wall, 1)
    return found


def spread(name: str, values: list[float]) -> dict:
    ordered = sorted(values)
    ranks = {place: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for place, q in RANKS.items()}
    ranks["mean"] = sum(ordered) / len(ordered)
    return {f"{name}_{place}": round(value, 3) for place, value in ranks.items()}


if __name__ == "__main__":
    main()

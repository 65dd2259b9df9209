"""The same load from other clients: `vllm bench serve` and GuideLLM, where they are installed.

Each runs as a process of its own, as its users start it, and is charged the CPU time of that process and its
children. A run with short answers is subtracted from one with long answers of the same number of requests:
what is left is the cost of streamed tokens, without start-up, prompts and reports.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from servers import serving

ROOT = Path(__file__).parents[2]
TOKENIZER = ROOT / "examples/models/tiny-qwen3"
SHORT, LONG = 32, 1024
CONCURRENCY = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """`command` makes the command line for a URL, a number of requests and of tokens of each answer."""

    name: str
    command: Callable[[str, int, int], Sequence[str]]


def ours(url: str, requests: int, tokens: int) -> list[str]:
    load = ["--concurrency", str(CONCURRENCY), "--requests", str(requests), "--warmup", "0"]
    lengths = ["--prompt-tokens", "32", "--output-tokens", str(tokens), "--vocab-size", "1000"]
    only = ["--model", "null", "--no-calibrate", "--no-telemetry", "--json"]
    return [
        sys.executable,
        "-c",
        "from model_optimizer.cli import main; main()",
        "bench",
        url,
        *load,
        *lengths,
        *only,
    ]


def bare(url: str, requests: int, tokens: int) -> list[str]:
    code = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1])\n"
        "from clients import bare, prepared\n"
        "url, requests, tokens = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])\n"
        f"asyncio.run(bare(url, prepared(url, tokens), concurrency={CONCURRENCY}, requests=requests))"
    )
    return [sys.executable, "-c", code, str(Path(__file__).parent), url, str(requests), str(tokens)]


def vllm_bench(program: Path) -> Callable[[str, int, int], list[str]]:
    def command(url: str, requests: int, tokens: int) -> list[str]:
        load = ["--num-prompts", str(requests), "--max-concurrency", str(CONCURRENCY), "--ignore-eos"]
        data = ["--dataset-name", "random", "--random-input-len", "32", "--random-output-len", str(tokens)]
        whom = ["--base-url", url, "--model", "null", "--tokenizer", str(TOKENIZER)]
        return [str(program), "bench", "serve", "--backend", "openai", *whom, *data, *load, "--disable-tqdm"]

    return command


def guidellm(program: Path) -> Callable[[str, int, int], list[str]]:
    def command(url: str, requests: int, tokens: int) -> list[str]:
        whom = f"kind=openai_http,target={url},model=fake,request_format=/v1/completions"
        parts = {
            "--backend": whom,
            "--profile": f"kind=concurrent,streams={CONCURRENCY}",
            "--constraint": f"kind=max_requests,count={requests}",
            "--tokenizer": f"kind=huggingface_auto,model={TOKENIZER}",
            "--data": f"kind=synthetic_text,prompt_tokens=32,output_tokens={tokens}",
            "--output": "kind=json,path=guidellm.json",
        }
        return [str(program), "run", *(word for pair in parts.items() for word in pair), "--disable-console"]

    return command


def rivals(programs: Sequence[Path]) -> list[Rival]:
    """Ours, the bare loop, and what is installed of the others."""
    found = [Rival(name="mopt bench", command=ours), Rival(name="bare asyncio loop", command=bare)]
    for program in programs:
        make = vllm_bench if program.name == "vllm" else guidellm
        found.append(
            Rival(name="vllm bench serve" if make is vllm_bench else "guidellm", command=make(program))
        )
    return found


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of a process and the children it waited for. Raises when it fails."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd=scratch()
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]}: {said[-2000:].decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


def scratch() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="rivals-")


def cost(programs: Sequence[Path], rounds: int, requests: int) -> dict[str, object]:
    """Microseconds of CPU per streamed token of each client, in turns."""
    each: dict[str, list[float]] = {}
    all_of_them = rivals(programs)
    with serving("null_server", "--pace-ms", 4) as (url, _):
        for _ in range(rounds):
            for rival in all_of_them:
                short = cpu_seconds(rival.command(url, requests, SHORT))
                long = cpu_seconds(rival.command(url, requests, LONG))
                each.setdefault(rival.name, []).append(1e6 * (long - short) / (requests * (LONG - SHORT)))
    mine = each["mopt bench"]
    return {
        "us_per_token": {name: median(values) for name, values in each.items()},
        "rounds": each,
        "mopt bench / other": {
            name: median(a / b for a, b in zip(mine, values, strict=True))
            for name, values in each.items()
            if name != "mopt bench"
        },
    }


def start_up(programs: Sequence[Path]) -> dict[str, object]:
    """Seconds from the start of a process to its first request of a generation at the server."""
    found: dict[str, object] = {}
    calibrating = Rival(
        name="mopt bench, with calibration", command=lambda *a: [w for w in ours(*a) if w != "--no-calibrate"]
    )
    for rival in (*rivals(programs), calibrating):
        with serving("fake_server", "--ttft-ms", 5, "--tpot-ms", 1) as (url, _):
            begin = time.perf_counter_ns()
            command = [
                word.replace("null", "fake") if word == "null" else word for word in rival.command(url, 64, 4)
            ]
            cpu_s = cpu_seconds(command)
            with urllib.request.urlopen(f"{url}/record") as answer:
                records = json.load(answer)["records"]
        times = [(r["received_ns"] - begin) / 1e9 for r in records]
        found[rival.name] = {
            "first_request_s": times[0],
            "load_begins_s": times[min(1, len(times) - 1)],
            "cpu_s_of_the_whole_run": cpu_s,
        }
    return found

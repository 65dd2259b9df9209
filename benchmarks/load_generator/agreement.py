"""Our numbers beside those of `vllm bench serve`, against the same server at the same lengths.

    python agreement.py --vllm ENV/bin/vllm [--ttft-ms 200] [--rounds 3] [--out FILE]

Both run as their users start them, one after the other. Compared is our `vllm_bench` block: vLLM's own
definitions; `tests/bench/test_agreement.py` shows that these are the same on the same times. The server
writes down when it really received and wrote, the truth for both: `beyond_ms` is by how much a client
measured more than the server did for it. README.md says what was seen, and why.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median

TOKENIZER = Path(__file__).parents[2] / "examples/models/tiny-qwen3"
REQUESTS, USERS, PROMPT, OUTPUT = 40, 4, 32, 32
Numbers = dict[str, float]


@contextmanager
def serving(ttft_ms: float, tpot_ms: float) -> Iterator[str]:
    pace = ["--ttft-ms", str(ttft_ms), "--tpot-ms", str(tpot_ms)]
    command = [sys.executable, "-m", "model_optimizer.testing.fake_server", *pace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def records(url: str) -> list[dict[str, list[int]]]:
    with urllib.request.urlopen(f"{url}/record") as answer:
        return json.load(answer)["records"]


def truth(url: str, before: int) -> Numbers:
    """What the server did for the load: its records, without those before and the first, which is a trial."""
    rows = records(url)[before + 1 :]
    first = [(r["wrote_ns"][0] - r["received_ns"]) / 1e6 for r in rows]
    whole = [(r["wrote_ns"][-1] - r["received_ns"]) / 1e6 for r in rows]
    each = [(b - a) / (OUTPUT - 1) for a, b in zip(first, whole, strict=True)]
    return {
        "mean_ttft_ms": fmean(first),
        "median_ttft_ms": median(first),
        "mean_tpot_ms": fmean(each),
        "median_tpot_ms": median(each),
        "mean_e2el_ms": fmean(whole),
        "median_e2el_ms": median(whole),
    }


def ours(url: str) -> Numbers:
    lengths = ["--prompt-tokens", str(PROMPT), "--output-tokens", str(OUTPUT), "--vocab-size", "1000"]
    load = ["--concurrency", str(USERS), "--requests", str(REQUESTS), "--warmup", "0"]
    code = "from model_optimizer.cli import main; main()"
    command = [sys.executable, "-c", code, "bench", url, *lengths, *load, "--no-telemetry", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)["vllm_bench"]


def theirs(vllm: str, url: str) -> Numbers:
    lengths = ["--random-input-len", str(PROMPT), "--random-output-len", str(OUTPUT), "--ignore-eos"]
    load = ["--num-prompts", str(REQUESTS), "--max-concurrency", str(USERS), "--disable-tqdm"]
    whom = ["--backend", "openai", "--base-url", url, "--model", "fake", "--tokenizer", str(TOKENIZER)]
    with tempfile.TemporaryDirectory() as folder:
        kept = ["--save-result", "--result-dir", folder, "--result-filename", "theirs.json"]
        shown = ["--dataset-name", "random", "--percentile-metrics", "ttft,tpot,itl,e2el"]
        command = [vllm, "bench", "serve", *whom, *lengths, *load, *kept, *shown]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, timeout=300)
        return json.loads((Path(folder) / "theirs.json").read_text())


def compared(found: Numbers, real: Numbers) -> dict[str, Numbers]:
    return {
        name: {"measured_ms": found[name], "server_ms": real[name], "beyond_ms": found[name] - real[name]}
        for name in real
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Do we and vllm bench serve agree, and if not, who is right?"
    )
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--ttft-ms", type=float, default=200)
    parser.add_argument("--tpot-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rounds: list[dict[str, object]] = []
    for _ in range(given.rounds):
        with serving(given.ttft_ms, given.tpot_ms) as url:
            before = len(records(url))
            first = compared(ours(url), truth(url, before))
            before = len(records(url))
            second = compared(theirs(given.vllm, url), truth(url, before))
        load = os.getloadavg()[0]
        rounds.append({"load_average": load, "mopt bench": first, "vllm bench serve": second})
        for name in first:
            a, b = first[name], second[name]
            print(
                f"{name:16} ours {a['measured_ms']:8.2f} ({a['beyond_ms']:+.2f})   "
                f"vllm {b['measured_ms']:8.2f} ({b['beyond_ms']:+.2f})   load average {load:.1f}",
                flush=True,
            )
    answer = {"ttft_ms": given.ttft_ms, "tpot_ms": given.tpot_ms, "requests": REQUESTS, "users": USERS}
    if given.out:
        given.out.write_text(json.dumps(answer | {"rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How fast `mopt diagnose` reads: megabytes a second on one core, and the start for a small log.

python benchmarks/diagnose_speed/run.py [--megabytes 200] [--out FILE]

Processor seconds are of this process (and, for the start, of a new one), so that a busy machine matters less.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from model_optimizer.diagnose import of_file

SERVING = (
    "(APIServer pid=1) INFO 11-30 10:00:{n:02d} [loggers.py:118] Engine 000: Avg prompt throughput: {n}.1 "
    "tokens/s, Avg generation throughput: 533.2 tokens/s, Running: {n} reqs, Waiting: 0, KV usage: 3.1%\n"
)
ACCESS = 'INFO:     10.0.0.{n}:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
JSON = (
    '{{"log":"INFO 11-30 10:00:{n:02d} [logger.py:40] Received request chatcmpl-{n}\\n","stream":"stderr"}}\n'
)
COLOUR = "\x1b[32mINFO\x1b[0m 11-30 10:00:{n:02d} \x1b[1mstep\x1b[0m {n} of 4096\n"
NEAR = "(Worker pid={n}) File vllm/tokenizer.py, line {n}, special_tokens of experts.{n}.w1\n"
TACTIC = "[W] [TRT] Tactic Device request: {n}480MB Available: 3904MB. Not used.\n"
ERRORS = "ERROR 11-30 10:00:{n:02d} [app.py:12] ValueError: request {n} is not what was expected\n"
END = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
KINDS = {
    "a server's log": [SERVING, ACCESS],
    "JSON lines": [JSON],
    "colours": [COLOUR],
    "every line a known warning": [TACTIC],
    "every line an unknown error": [ERRORS],
    "every line with fragments that lead nowhere": [NEAR],
}


def write(path: Path, lines: list[str], megabytes: int) -> None:
    block = "".join(line.format(n=n % 60) for n in range(4000) for line in lines).encode()
    with path.open("wb") as out:
        while out.tell() < megabytes << 20:
            out.write(block)
        out.write(END.encode())


def read(path: Path) -> dict[str, float]:
    wall, busy = time.perf_counter(), time.process_time()
    found = of_file(path)
    busy, wall = time.process_time() - busy, time.perf_counter() - wall
    assert found.primary is not None and found.primary.id == "cuda-oom"
    size = path.stat().st_size / 1e6
    return {
        "megabytes": round(size, 1),
        "mb_per_cpu_s": round(size / busy, 1),
        "mb_per_s": round(size / wall, 1),
    }


def start(path: Path, times: int = 7) -> dict[str, float]:
    """A new process for a small log, with compiled modules as an installer leaves them."""
    command = [sys.executable, "-m", "model_optimizer", "diagnose", str(path), "--json"]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(path.parent / "compiled")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    walls: list[float] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
        walls.append(time.perf_counter() - begun)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "fastest_s": round(min(walls), 3),
        "median_s": round(statistics.median(walls), 3),
        "cpu_s": round(busy / times, 3),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--megabytes", type=int, default=200)
    asked.add_argument("--out", type=Path)
    options = asked.parse_args()
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        for kind, lines in KINDS.items():
            write(log, lines, options.megabytes)
            rows[kind] = read(log)
            print(kind, rows[kind], flush=True)
        log.write_text(END)
        rows["start"] = start(log)
        print("start", rows["start"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {
        "rows": rows,
        "peak_rss_mib": round(peak),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
    }
    print({k: v for k, v in result.items() if k != "rows"})
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

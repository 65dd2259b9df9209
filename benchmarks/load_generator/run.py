"""Is the load generator cheap and right? Ratios that are measured side by side, in one run.

    python benchmarks/load_generator/run.py [--quick] [--rival ENV/bin/vllm] [--out FILE]

cost     CPU per streamed token of our client and of a bare asyncio receive loop, in turns
ceiling  requests per second that one core of our client could send and read
truth    what our client measures at 500 requests/s of 8 tokens, beside when the server really wrote
streams  memory of 1,000 concurrent streams
start    seconds from the start of the process to its first request
rivals   CPU per streamed token of whole processes: ours, the bare loop, and other tools that are named
"""

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

import rivals
from clients import Cost, bare, ours, prepared
from servers import serving

from model_optimizer.bench.latency import gaps_ms, ttft_ms
from model_optimizer.bench.level import Driven, Level

TOKENS = 64


def closed(concurrency: int, requests: int) -> Level:
    return Level(title="closed", arrivals="closed", concurrency=concurrency, requests=requests)


def cost(rounds: int) -> dict[str, object]:
    """32 streams of 64 tokens, a token each 2 ms: nothing arrives together, nobody is saturated."""
    found: dict[str, list[Cost]] = {"ours": [], "bare": []}
    with serving("null_server", "--pace-ms", 4) as (url, _):
        request = prepared(url, TOKENS)
        for _ in range(rounds):
            found["bare"].append(asyncio.run(bare(url, request, concurrency=32, requests=512)))
            found["ours"].append(asyncio.run(ours(url, request, closed(32, 512)))[1])
    each = {name: [1e6 * c.cpu_s / (c.requests * TOKENS) for c in costs] for name, costs in found.items()}
    reading = [1e6 * c.reading_s / (c.requests * TOKENS) for c in found["ours"]]
    under_load = [a - b for a, b in zip(each["ours"], reading, strict=True)]
    return {
        "bare_us_per_token": median(each["bare"]),
        "ours_us_per_token": median(each["ours"]),
        "ours_under_load_us_per_token": median(under_load),
        "ours_reading_afterwards_us_per_token": median(reading),
        "ratio_under_load": median(a / b for a, b in zip(under_load, each["bare"], strict=True)),
        "ratio_with_reading": median(a / b for a, b in zip(each["ours"], each["bare"], strict=True)),
        "pieces_per_token": {n: c[0].pieces / (c[0].requests * TOKENS) for n, c in found.items()},
    }


def ceiling(requests: int) -> dict[str, object]:
    """A core's time per request, and how many fit into a second."""
    answer: dict[str, object] = {}
    with serving("null_server") as (url, _):
        for name, tokens, stream in (("whole", 1, False), ("stream of 64 tokens, one write", 64, True)):
            _, found = asyncio.run(ours(url, prepared(url, tokens, stream=stream), closed(32, requests)))
            each = found.cpu_s / found.requests
            answer[name] = {
                "us_per_request": 1e6 * each,
                "requests_per_s_of_one_core": 1 / each,
                "requests_per_s_reached": found.requests / found.wall_s,
            }
    return answer


def truth(seconds: float) -> dict[str, object]:
    """The server and we read the same clock, so its record is the truth to compare with."""
    level = Level(title="open", arrivals="poisson", qps=500, duration_s=seconds, warmup=250, seed=1)
    with serving("fake_server", "--ttft-ms", 20, "--tpot-ms", 5) as (url, _):
        driven: Driven
        driven, found = asyncio.run(ours(url, prepared(url, 8), level))
        with urllib.request.urlopen(f"{url}/record") as answer:
            records = json.load(answer)["records"]
    done = [o for o in driven.outcomes if o.completed]
    wrote = sorted(t for r in records for t in r["wrote_ns"])
    received = sorted(t for o in done for t in o.token_ns)
    assert len(wrote) == len(received), (len(wrote), len(received))
    first = [(r["wrote_ns"][0] - r["received_ns"]) / 1e6 for r in records]
    gaps = [(b - a) / 1e6 for r in records for a, b in zip(r["wrote_ns"], r["wrote_ns"][1:], strict=False)]
    measured_first = [t for o in done if (t := ttft_ms(o, scheduled=False)) is not None]
    pairs = {
        "ttft_ms": (median(measured_first), median(first)),
        "itl_ms": (median(g for o in done for g in gaps_ms(o)), median(gaps)),
    }
    return {
        "requests": len(done),
        "failed": len(driven.outcomes) - len(done),
        "requests_per_s": len(done) / found.wall_s,
        "client_cpu_share": driven.cpu_share,
        "schedule_slip_ms_p99": sorted(driven.slips_ms)[int(0.99 * len(driven.slips_ms))],
        "token_received_after_written_ms": median(
            (b - a) / 1e6 for a, b in zip(wrote, received, strict=True)
        ),
        **{
            name: {"ours": got, "server": real, "within": abs(got - real) <= max(1.0, 0.02 * real)}
            for name, (got, real) in pairs.items()
        },
    }


def streams() -> dict[str, object]:
    """A process of its own opens 1,000 streams at once; its peak resident size is asked of the kernel."""
    with serving("null_server", "--pace-ms", 50) as (url, _):
        code = (
            "import asyncio, resource, sys; sys.path.insert(0, sys.argv[2])\n"
            "from clients import ours, prepared; from model_optimizer.bench.level import Level\n"
            "level = Level(title='', arrivals='closed', concurrency=1000, requests=1000)\n"
            "driven, cost = asyncio.run(ours(sys.argv[1], prepared(sys.argv[1], 64), level))\n"
            "print(sum(o.completed for o in driven.outcomes),"
            " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        command = [sys.executable, "-c", code, url, str(Path(__file__).parent)]
        done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"completed": int(done[0]), "peak_rss_mib": float(done[1])}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rival", type=Path, action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    parts = {
        "cost": lambda: cost(3 if given.quick else 9),
        "ceiling": lambda: ceiling(2_000 if given.quick else 10_000),
        "truth": lambda: truth(3 if given.quick else 10),
        "streams": streams,
        "start": lambda: rivals.start_up(given.rival),
        "rivals": lambda: rivals.cost(given.rival, 1 if given.quick else 3, 64 if given.quick else 128),
    }
    found = {
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "date": time.strftime("%Y-%m-%d"),
        **{name: part() for name, part in parts.items() if not given.only or name in given.only},
    }
    text = json.dumps(found, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Wall and processor time of the planning commands, beside aiconfigurator's sweep where it is installed."""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

LOAD = ("--prompt-tokens", "4000", "--output-tokens", "500")
FIT = ("fit", "Qwen/Qwen3-8B", "--gpu", "h200", "--json")
ESTIMATE = ("estimate", "Qwen/Qwen3-8B", "--gpu", "h200", "--concurrency", "40", *LOAD, "--json")
LIMITS = ("--ttft-ms", "1000", "--tpot-ms", "20")
PLAN = ("plan", "Qwen/Qwen3-8B", "--gpu", "h200", "--gpus", "8", "--qps", "20", *LOAD, *LIMITS, "--json")
COMMANDS = {"fit": (0.35, FIT), "estimate": (0.35, ESTIMATE), "plan": (0.7, PLAN)}
SWEEP = (
    "-m", "aiconfigurator.main", "cli", "default", "--model-path", "Qwen/Qwen3-8B", "--total-gpus", "8",
    "--system", "h200_sxm", "--backend", "vllm", "--isl", "4000", "--osl", "500",
    "--ttft", "1000", "--tpot", "20",
)  # fmt: skip


def timed(command: Sequence[str]) -> tuple[float, float]:
    """(wall seconds, processor seconds) of one process."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.decode()[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--aiconfigurator", metavar="PYTHON")
    asked = parser.parse_args()
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(asked.runs):
        for name, (_, words) in COMMANDS.items():
            rows[name].append(timed([sys.executable, "-m", "model_optimizer", *words]))
    print(f"{'command':10} {'fastest':>9} {'median':>9} {'processor':>10} {'target':>8}")
    for name, found in rows.items():
        walls, used = [w for w, _ in found], [u for _, u in found]
        target = COMMANDS[name][0]
        middle = statistics.median(walls)
        print(f"{name:10} {min(walls):8.2f}s {middle:8.2f}s {min(used):9.2f}s {target:7.2f}s")
    print(f"load average {os.getloadavg()[0]:.1f}, {asked.runs} runs")
    if asked.aiconfigurator:
        sweep, _ = timed([asked.aiconfigurator, *SWEEP])
        ratio = sweep / min(wall for wall, _ in rows["plan"])
        print(f"aiconfigurator's sweep {sweep:.1f} s: {ratio:.0f} times as long")


if __name__ == "__main__":
    main()

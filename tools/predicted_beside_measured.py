"""Predictions beside loads of a tuning study, and beside texts embedded in batches.

    python tools/predicted_beside_measured.py > evidence/speed-model/unseen.txt

Reads evidence/tune-h200/study-2026-11-30.json.gz (closed loops of Qwen3-8B with vLLM 0.25.1 on an H200) and
evidence/vllm-0.25.1-h200/embeddings-*.json (the shape of Qwen3-Embedding-0.6B). Prints each prediction as the
product makes it without its measurements (roofline), without and with what `mopt calibrate` found there.
"""

import gzip
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
import evaluate_speed as tool

from model_optimizer.facts import gpus
from model_optimizer.planner.speed.roofline import roofline
from model_optimizer.planner.speed.setup import Setup

ROOT = Path(__file__).parents[1]
NAMES = ("tpot", "ttft", "throughput")


def study() -> list[tuple[tool.Point, dict[str, float]]]:
    """Each level of each trial as a point, and what was measured: means.

    Rates of windows of 4 s come in whole waves of clients; clients over the mean time of a request, by
    Little's law, do not.
    """
    path = ROOT / "evidence/tune-h200/study-2026-11-30.json.gz"
    found = []
    for trial in json.loads(gzip.decompress(path.read_bytes()))["trials"]:
        said = trial["settings"]
        for point in trial["points"]:
            p = tool.Point(
                source="ours-study",
                id=f"trial {trial['number']}, {point['concurrency']} clients",
                model="Qwen/Qwen3-8B",
                scheme=said["quantization"] or "bf16",
                gpu="H200 SXM 141GB",
                version="0.25.1",
                kv_bits=8 if said["kv-cache-dtype"] == "fp8" else 16,
                prompt=1024,
                output=128,
                concurrency=point["concurrency"],
                max_num_batched_tokens=int(said["max-num-batched-tokens"] or 0) or None,
                kv_tokens=int(trial["kv_cache_tokens"]),
                async_scheduling=said["async-scheduling"] != "0",
                ttft_stat="mean",
            )
            measured = {
                "tpot": point["tpot_ms"]["mean"],
                "ttft": point["ttft_ms"]["mean"],
                "throughput": point["concurrency"] / point["e2e_ms"]["mean"] * 1e3 * 128,
            }
            found.append((p, measured))
    return found


def show(name: str, measured: dict[str, float], said: dict[str, float]) -> str:
    cells = [f"{q} {measured[q]:9.1f} {said[q]:9.1f} {said[q] / measured[q] - 1:+6.0%}" for q in measured]
    return f"{name:24} " + "   ".join(cells)


def embeddings() -> None:
    paths = [*(ROOT / "evidence/vllm-0.25.1-h200").glob("embeddings-*.json")]
    paths += (ROOT / "evidence/convert").glob("embed-fp8-*.json")
    model = tool._model("Qwen/Qwen3-Embedding-0.6B")
    own = tool.calibration_of(study()[0][0])
    print(
        "\nOne batch of texts of 512 tokens (ms): measured (median), predicted step, difference. In one process"
    )
    print("and as token ids, so that no front end is counted; vLLM's batch of 1 gave `pooled_launches`.")
    for path in paths:
        print(path.name)
        for row in json.loads(path.read_text())["rows"]:
            if "latency_ms" not in row or row["way"] == "eager":
                continue
            scheme = tool._scheme("fp8" if row["way"].endswith("fp8") else "bf16")
            setup = Setup(model=model, gpu=gpus.find("h200"), scheme=scheme, version="0.25.1")
            steps = roofline(setup, calibration=own)
            bare = replace(steps.host, gap_ms=0.0, step_ms=0.0, sequence_us=0.0, layer_us=0.0)
            plain = replace(steps, host=bare if row["way"] == "compiled" else steps.host, known={})
            said, measured = plain.prefill_ms(512, sequences=row["batch"]), row["latency_ms"]["p50"]
            print(
                f"{row['way']:12} {row['batch']:3}  {measured:7.2f} {said:7.2f} {said / measured - 1:+5.0%}"
            )


def main() -> None:
    rows = study()
    print("Loads of a study: measured, predicted, difference. Without calibration no constant was fitted to")
    print("them, with it one: what a compiled layer costs the host (piece_launches).")
    print("Milliseconds (means) and tokens/s; 4 s a level, answers of one length, a slow host.")
    for calibrated in (False, True):
        tool.CALIBRATED = calibrated
        print("\nwith" if calibrated else "\nwithout", "`mopt calibrate` of that machine")
        errors: dict[str, list[float]] = {name: [] for name in NAMES}
        for p, measured in rows:
            said = tool.predict(p)
            print(show(p.id, measured, {q: said[q] or math.nan for q in measured}))
            for q in measured:
                errors[q].append(abs(math.log((said[q] or math.nan) / measured[q])))
        print("median".ljust(24), "   ".join(f"{q} {median(v):.0%}" for q, v in errors.items()))
    embeddings()


if __name__ == "__main__":
    main()

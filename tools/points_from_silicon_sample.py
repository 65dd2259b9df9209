"""Picks the rows of aiconfigurator-core's silicon sample that one plain replica explains.

    python tools/points_from_silicon_sample.py .../aiconfigurator_core/systems/silicon_sample.csv

Keeps aggregated serving without attention-data-parallel or expert parallelism, of models whose shape is in
the facts, and leaves out servers that drafted tokens, which the sample does not mark. Writes evidence/speed-model/points/silicon-sample.csv; a configuration
that was measured several times becomes one row with the mean.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

OUT = Path(__file__).parents[1] / "evidence/speed-model/points/silicon-sample.csv"
GPUS = {"h100_sxm": "H100 SXM5 80GB", "h200_sxm": "H200 SXM 141GB", "b200_sxm": "B200"}
MODELS = {
    "Qwen/Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B-FP8",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "openai/gpt-oss-120b": "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}


def scheme(row: dict[str, str]) -> str | None:
    model, precision = row["model_path"], row["precision"]
    if model == "openai/gpt-oss-120b":
        return "mxfp4"
    if model in ("deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B-FP8"):
        return {"fp8": "fp8_block", "": "fp8_block", "fp4": "nvfp4"}.get(precision)
    if row["gemm_quant_mode"] == "fp8_block":
        return "fp8_block"
    return {"fp8": "fp8", "fp4": "nvfp4", "bf16": "bf16", "": "bf16"}.get(precision)


DRAFTING = "1.2.0rc6.post3"
"""TensorRT-LLM's image of `dsr1-fp4-b200-trt-mtp` and `dsr1-fp8-b200-trt-mtp` in SemiAnalysisAI/InferenceX
(.github/configs/nvidia-master.yaml @0004cf5f); without drafts the same servers ran 1.2.0rc6.post2."""


def drafted(row: dict[str, str]) -> bool:
    """Whether the server drafted tokens with DeepSeek's own layer (MTP), by the settings of InferenceX.

    `dsr1-fp8-b200-sglang-mtp` asked 8 GPUs with 4 to 512 clients, `dsr1-fp8-b200-sglang` with 4 to 64, or 4
    where prompts have 8192 tokens; what both asked is told apart in `plain`.
    """
    if row["model_path"] != "deepseek-ai/DeepSeek-R1" or row["system"] != "b200_sxm":
        return False
    if row["backend"] == "trtllm":
        return row["backend_version"] == DRAFTING
    if row["backend"] != "sglang" or not _both(row):
        return False
    return float(row["batch_size"]) > (64 if row["isl"] == "1024" else 4)


def _both(row: dict[str, str]) -> bool:
    """A row of the servers that ran both ways under one release."""
    fp8 = row["precision"] == "fp8" and row["tp_size"] in ("8", "8.0")
    return row["backend"] == "sglang" and fp8 and row["backend_version"] == "0.5.9"


def plain(rows: list[tuple[float, float]], both: bool) -> list[tuple[float, float]]:
    """Of a configuration that ran with drafts too: the run in which a token takes longer."""
    return [max(rows, key=lambda row: row[1])] if both else rows


def main() -> None:
    groups: dict[tuple, list[tuple[float, float]]] = defaultdict(list)
    mixed = set[tuple]()
    for row in csv.DictReader(Path(sys.argv[1]).read_text().splitlines()):
        # Rows without `attention_dp_size` come from another collection, in which some cannot be what they say
        # (235 GB of weights on one GPU of 141 GB; more operations a second than the peak): all are left out.
        alone = row["mode"] == "agg" and row["attention_dp_size"] not in ("", "0.0")
        alone = alone and float(row["attention_dp_size"]) == 1
        if not alone or drafted(row) or row["system"] not in GPUS or row["model_path"] not in MODELS:
            continue
        if float(row["moe_ep_size"] or 1) > 1 or float(row["pp_size"] or 1) > 1 or not scheme(row):
            continue
        key = (
            ENGINES[row["backend"]], row["backend_version"], MODELS[row["model_path"]], scheme(row),
            GPUS[row["system"]], int(float(row["tp_size"])), int(row["isl"]), int(row["osl"]),
            int(float(row["batch_size"])),
        )  # fmt: skip
        groups[key].append((float(row["silicon_ttft_ms"]), float(row["silicon_tpot_ms"])))
        if row["system"] == "b200_sxm" and row["model_path"] == "deepseek-ai/DeepSeek-R1" and _both(row):
            mixed.add(key)
    with OUT.open("w") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            [
                "engine",
                "version",
                "model",
                "scheme",
                "gpu",
                "gpus",
                "prompt",
                "output",
                "concurrency",
                "ttft_mean_ms",
                "tpot_mean_ms",
            ]
        )
        for key, every in sorted(groups.items()):
            rows = plain(every, key in mixed)
            writer.writerow([*key, f"{fmean(r[0] for r in rows):.1f}", f"{fmean(r[1] for r in rows):.3f}"])
    print(len(groups), "rows")


if __name__ == "__main__":
    main()

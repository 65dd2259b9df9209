"""Fits the constants of the speed model's kernels to measured kernel times, one file a GPU generation.

    python tools/fit_speed_kernels.py --tables .../aiconfigurator_core/systems/data

Needs numpy, scipy, pandas and pyarrow, and the tables of aiconfigurator-core 0.12 (Apache-2.0; NVIDIA
measured them with the engines' own kernels). Writes facts/speed/kernels/<generation>.toml, the rows that were
used (`evidence/speed-model/kernels.csv.gz`) and the errors of the fit (`kernels-fit.csv`).

Nothing measured at a server goes in here, so a comparison with servers is a test of these constants.
What is fitted, with bytes and operations counted from the shapes and the peaks of the GPU's fact file:

- gemm: launch + ((bytes / (peak x bandwidth))^blend + (operations / (peak x compute))^blend)^(1/blend)
- moe: the same, where the bytes are those of the experts that a batch of tokens is expected to meet
- decode attention: launch + sequences x per_sequence, blended with bytes of the KV cache / (peak x bandwidth)
- prefill attention: launch + operations of (tokens x (tokens / 2 + cached + pad)) / (peak x compute)
- all-reduce: launch + message x hops / (link x bandwidth), hops = 2 (n - 1) / n
"""

import argparse
import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from model_optimizer.facts import gpus

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src/model_optimizer/facts/speed/kernels"
EVIDENCE = ROOT / "evidence/speed-model"

# generation: (compute capability, folder of the tables, vLLM version of the tables, GPU that was measured)
GENERATIONS = {
    "ampere": ((8, 0), "a100_sxm", "0.14.0", "A100 SXM4 80GB"),
    "ada": ((8, 9), "l40s", "0.24.0", "L40S"),
    "hopper": ((9, 0), "h100_sxm", "0.24.0", "H100 SXM5 80GB"),
    "blackwell": ((10, 0), "b200_sxm", "0.24.0", "B200"),
    "blackwell_consumer": ((12, 0), "rtx_pro_6000_server", "0.24.0", "RTX PRO 6000 Blackwell Workstation"),
}
# Also measured, on the same generation with other memory: goes into the same fit.
TWINS = {"hopper": ("h200_sxm", "0.24.0", "H200 SXM 141GB")}
SHAPES = [
    (1024, 1024), (3072, 1024), (4096, 1024), (8192, 1024), (1024, 4096), (1536, 5120), (2048, 2048),
    (2560, 2048), (5120, 2048), (7168, 2048), (16384, 2048), (2048, 4096), (4096, 2048), (2048, 8192),
    (3072, 3072), (3584, 3584), (3584, 18944), (4096, 4096), (6144, 4096), (12288, 4096), (14336, 4096),
    (24576, 4096), (28672, 4096), (4096, 12288), (5120, 5120), (7168, 5120), (51200, 5120), (5120, 8192),
    (5120, 25600), (8192, 4096), (8192, 8192), (10240, 8192), (57344, 8192), (8192, 28672),
]  # fmt: skip
TOKENS = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192]
BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_block": 1,
    "nvfp4": 0.5625,
    "int4_wo": 0.53,
    "w4a16_mxfp4": 0.53,
}
NAMES = {
    "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
    "int4_wo": "int4", "w4a16_mxfp4": "mxfp4",
}  # fmt: skip
RATE = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}


def peak(gpu, kind: str) -> float:
    found = gpu.peak_per_s(RATE.get(kind, "bf16"))
    return found or gpu.peak_per_s("bf16") * (4 if kind == "nvfp4" else 2)


def fit(model, starts, truth, bounds):
    """Least mean absolute logarithm of predicted over measured; returns parameters and ratios."""

    def loss(p):
        if any(not low <= x <= high for x, (low, high) in zip(p, bounds, strict=True)):
            return 1e3
        return float(np.mean(np.abs(np.log(model(p) / truth))))

    best = min(
        (minimize(loss, start, method="Nelder-Mead", options={"maxiter": 3000}) for start in starts),
        key=lambda r: r.fun,
    )
    return best.x, model(best.x) / truth


def blended(p, bytes_, operations):
    launch, bandwidth, compute, blend = p
    return launch * 1e-6 + ((bytes_ / bandwidth) ** blend + (operations / compute) ** blend) ** (1 / blend)


def gemm_rows(data: Path, folder: str, version: str, engine: str = "vllm") -> pd.DataFrame:
    rows = pd.read_parquet(data / folder / "gemm" / engine / version / "gemm_perf.parquet")
    known = set(SHAPES)
    keep = [(n, k) in known and m in TOKENS for m, n, k in zip(rows.m, rows.n, rows.k, strict=True)]
    return rows[keep][["gemm_dtype", "m", "n", "k", "latency"]]


def fit_gemm(frames):
    """frames: [(gpu, rows)]"""
    found = {}
    for kind in sorted({k for _, rows in frames for k in rows.gemm_dtype.unique()}):
        bytes_, operations, truth = [], [], []
        for gpu, rows in frames:
            e = rows[rows.gemm_dtype == kind]
            m, n, k = (e[c].to_numpy(float) for c in "mnk")
            size = BYTES[kind]
            bytes_.append((n * k * size + m * k * min(size, 2) + m * n * 2) / gpu.bandwidth_bytes_per_s)
            operations.append(2 * m * n * k / peak(gpu, kind))
            truth.append(e.latency.to_numpy(float) * 1e-3)
        b, o, t = (np.concatenate(x) for x in (bytes_, operations, truth))
        if len(t) < 100:
            continue
        starts = ([4, 0.8, 0.8, 3], [8, 0.9, 0.6, 2], [10, 0.7, 0.5, 1.5])
        p, ratio = fit(lambda p, b=b, o=o: blended(p, b, o), starts, t, ((0, 40), (0.1, 1), (0.1, 1), (1, 8)))
        found[NAMES[kind]] = (p, ratio)
    return found


def moe_rows(data: Path, folder: str, version: str) -> pd.DataFrame:
    rows = pd.read_parquet(data / folder / "moe" / "vllm" / version / "moe_perf.parquet")
    rows = rows[(rows.moe_ep_size == 1) & (rows.num_tokens <= 8192) & (rows.distribution == "power_law_1.01")]
    rows = rows[rows.num_experts <= 256]
    return rows.groupby(
        ["moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size"],
        as_index=False,
    ).latency.min()


def fit_moe(frames):
    found = {}
    for kind in sorted({k for _, rows in frames for k in rows.moe_dtype.unique()}):
        # The FP8 kernel that vLLM 0.24.0 chose on Hopper ran at a seventh of the memory's speed; the Triton
        # kernel for FP8 in blocks is what other releases run.
        if kind not in BYTES or (kind == "fp8" and any(gpu.architecture == "Hopper" for gpu, _ in frames)):
            continue
        parts = []
        for gpu, rows in frames:
            e = rows[rows.moe_dtype == kind]
            m, h, i, k, n, tp = (
                e[c].to_numpy(float)
                for c in ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
            )
            weights = 3 * h * i / tp * BYTES[kind]
            parts.append(
                (
                    gpu,
                    m,
                    weights,
                    k,
                    n,
                    6 * m * k * h * i / tp,
                    m * k * h * 4,
                    e.latency.to_numpy(float) * 1e-3,
                )
            )
        truth = np.concatenate([part[-1] for part in parts])

        def model(p, parts=parts, kind=kind):
            times = []
            for gpu, m, weights, k, n, operations, moved, _ in parts:
                met = n * (1 - (1 - k / n) ** (m * p[4]))
                bytes_ = (met * weights + moved) / gpu.bandwidth_bytes_per_s
                times.append(blended(p[:4], bytes_, operations / peak(gpu, kind)))
            return np.concatenate(times)

        starts = ([20, 0.7, 0.5, 2, 0.7], [10, 0.5, 0.4, 1.5, 0.5])
        bounds = ((0, 150), (0.05, 1), (0.03, 1), (1, 8), (0.2, 1))
        p, ratio = fit(model, starts, truth, bounds)
        found[NAMES[kind]] = (p, ratio)
    return found


def decode_rows(data: Path, folder: str, version: str) -> pd.DataFrame:
    rows = pd.read_parquet(
        data / folder / "attention" / "vllm" / version / "generation_attention_perf.parquet"
    )
    if "window_size" in rows:
        rows = rows[rows.window_size == 0]
    rows = rows[(rows.head_dim == 128) & (rows.num_heads >= 8) & (rows.num_key_value_heads >= 2)]
    rows = rows[(rows.num_heads != rows.num_key_value_heads) & (rows.isl + rows.step >= 16)]
    return rows[
        ["kv_cache_dtype", "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "latency"]
    ]


def fit_decode(frames):
    found = {}
    for name, kinds, size in (("bf16", ("bfloat16", "float16"), 2), ("fp8", ("fp8",), 1)):
        parts = []
        for gpu, rows in frames:
            e = rows[rows.kv_cache_dtype.isin(kinds)]
            b = e.batch_size.to_numpy(float)
            bytes_ = (
                2 * size * e.num_key_value_heads.to_numpy(float) * 128 * (e.isl + e.step).to_numpy(float) * b
            )
            # What fits into the cache of the GPU is faster than its memory and not what a server sees.
            keep = (bytes_ > 2 * (gpu.l2_bytes or 0)) | (bytes_ / gpu.bandwidth_bytes_per_s < 2e-6)
            parts.append(
                (b[keep], bytes_[keep] / gpu.bandwidth_bytes_per_s, e.latency.to_numpy(float)[keep] * 1e-3)
            )
        b, bytes_, truth = (np.concatenate(x) for x in zip(*parts, strict=True))
        if len(truth) < 50:
            continue

        def model(p, b=b, bytes_=bytes_):
            return ((p[0] * 1e-6 + b * p[1] * 1e-6) ** p[3] + (bytes_ / p[2]) ** p[3]) ** (1 / p[3])

        starts, bounds = ([11, 0.2, 0.9, 1.5], [20, 0.3, 0.8, 1]), ((0, 60), (0, 2), (0.2, 1), (1, 8))
        p, ratio = fit(model, starts, truth, bounds)
        found[name] = (p, ratio)
    return found


def prefill_rows(data: Path, folder: str, version: str) -> pd.DataFrame:
    rows = pd.read_parquet(data / folder / "attention" / "vllm" / version / "context_attention_perf.parquet")
    if "window_size" in rows:
        rows = rows[rows.window_size == 0]
    rows = rows[
        (rows.head_dim == 128) & rows.kv_cache_dtype.isin(["bfloat16", "float16"]) & (rows.num_heads >= 8)
    ]
    rows = rows[(rows.isl >= 64) & (rows.isl * rows.batch_size <= 16384)]
    return rows[["batch_size", "isl", "step", "num_heads", "latency"]]


def fit_prefill(frames):
    parts = []
    for gpu, e in frames:
        b, isl, step, heads = (e[c].to_numpy(float) for c in ("batch_size", "isl", "step", "num_heads"))
        parts.append(
            (b * isl * heads * 512 / peak(gpu, "bf16"), isl / 2 + step, e.latency.to_numpy(float) * 1e-3)
        )
    scale, keys, truth = (np.concatenate(x) for x in zip(*parts, strict=True))

    def model(p):
        return p[0] * 1e-6 + scale * (keys + p[2]) / p[1]

    return fit(model, ([12, 0.5, 128], [15, 0.6, 300]), truth, ((0, 60), (0.1, 1), (0, 3000)))


def fit_reduce(data: Path, folder: str, gpu):
    files = sorted((data / folder / "comm" / "vllm").glob("*/custom_allreduce_perf.parquet"))
    if not files:
        return {}
    rows = pd.read_parquet(files[-1])
    rows = rows[rows.kernel_source.str.endswith("graph") & (rows.message_size <= 2**27)]
    link = (gpu.nvlink_bytes_per_s or 0) / 2 or pcie(gpu)
    found = {}
    for count, e in rows.groupby("num_gpus"):
        hops = 2 * (count - 1) / count
        # `message_size` counts elements: of NCCL's rows, 8 bits take half the time of 16 at the same size.
        size, truth = 2 * e.message_size.to_numpy(float), e.latency.to_numpy(float) * 1e-3

        def model(p, size=size, hops=hops):
            return p[0] * 1e-6 + size * hops / (link * p[1])

        found[int(count)] = fit(model, ([5, 0.5], [20, 0.1]), truth, ((0, 200), (0.001, 1)))
    return found


def pcie(gpu) -> float:
    """Bytes a second in one direction of `4.0 x16`."""
    generation, lanes = gpu.pcie.split(" x")
    return {3.0: 0.985e9, 4.0: 1.969e9, 5.0: 3.938e9}[float(generation)] * int(lanes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True)
    data = parser.parse_args().tables
    OUT.mkdir(parents=True, exist_ok=True)
    report, used = [], []
    for name, (capability, folder, version, gpu_name) in GENERATIONS.items():
        places = [(gpus.find(gpu_name), folder, version)]
        if name in TWINS:
            twin = TWINS[name]
            places.append((gpus.find(twin[2]), twin[0], twin[1]))
        gemms = [(g, gemm_rows(data, f, v)) for g, f, v in places]
        gemms = [(g, r[r.gemm_dtype != "fp8_block"]) for g, r in gemms]
        blocks = []
        for g, f, _ in places:
            for path in sorted((data / f / "gemm" / "sglang").glob("*"))[-1:]:
                rows = gemm_rows(data, f, path.name, "sglang")
                blocks.append((g, rows[rows.gemm_dtype == "fp8_block"]))
        moes = [(g, moe_rows(data, f, v)) for g, f, v in places]
        decodes = [(g, decode_rows(data, f, v)) for g, f, v in places]
        prefills = [(g, prefill_rows(data, f, v)) for g, f, v in places]
        parts = {
            "gemm": fit_gemm(gemms) | (fit_gemm(blocks) if name not in ("ada", "ampere") else {}),
            "moe": fit_moe(moes),
            "decode_attention": fit_decode(decodes),
            "prefill_attention": {"bf16": fit_prefill(prefills)},
            "all_reduce": fit_reduce(data, folder, places[0][0]),
        }
        write(name, capability, version, places, parts)
        for part, found in parts.items():
            for kind, (p, ratio) in found.items():
                error = np.abs(np.log(ratio))
                report.append([name, part, kind, len(ratio), f"{np.median(error):.3f}", f"{np.quantile(error, 0.8):.3f}",
                               *(f"{x:.4g}" for x in p)])  # fmt: skip
        for part, frames in (
            ("gemm", gemms + blocks),
            ("moe", moes),
            ("decode", decodes),
            ("prefill", prefills),
        ):
            for gpu, rows in frames:
                sample = rows.iloc[:: max(1, len(rows) // 700)]
                used += [[gpu.name, part, *row] for row in sample.itertuples(index=False)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(used)
    (EVIDENCE / "kernels.csv.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    with (EVIDENCE / "kernels-fit.csv").open("w") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["generation", "part", "kind", "rows", "median_error", "error_p80", "parameters"])
        writer.writerows(report)
    for row in report:
        print(*row)


FIELDS = {
    "gemm": ("launch_us", "bandwidth", "compute", "blend"),
    "moe": ("launch_us", "bandwidth", "compute", "blend", "spread"),
    "decode_attention": ("launch_us", "per_sequence_us", "bandwidth", "blend"),
    "prefill_attention": ("launch_us", "compute", "pad_tokens"),
    "all_reduce": ("launch_us", "bandwidth"),
}


def write(name, capability, version, places, parts) -> None:
    cards = " and ".join(g.name for g, _, _ in places)
    lines = [
        f'generation = "{name}"',
        f"compute_capability = [{capability[0]}, {capability[1]}]",
        f'measured_on = "{cards}"',
        f"watts_per_tflops = {places[0][0].tdp_w / places[0][0].dense_tflops.bf16:.3f}",
        "source = [",
        f'  "aiconfigurator-core 0.12.0 (Apache-2.0), kernel times measured by NVIDIA with vLLM {version} on {cards}",',
        '  "fitted by tools/fit_speed_kernels.py; rows and errors in evidence/speed-model/",',
        "]",
    ]
    for part, found in parts.items():
        for kind, (p, ratio) in found.items():
            error = float(np.median(np.abs(np.log(ratio))))
            lines += ["", f"[{part}.{kind}]"]
            lines += [f"{field} = {float(f'{x:.3g}')}" for field, x in zip(FIELDS[part], p, strict=True)]
            lines += [f"error = {error:.3f}"]
    (OUT / f"{name}.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

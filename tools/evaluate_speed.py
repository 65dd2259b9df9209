"""Compares the speed model with servers that others and we have measured, source by source.

    python tools/evaluate_speed.py [--fit] [--source NAME] [--rows] [--out evidence/speed-model]

Reads evidence/speed-model/points/*.csv and our own loads in evidence/vllm-*/. Without --fit the constants
in facts/speed are used as they are. With --fit the few constants that are fitted to servers are fitted anew
for each source on all *other* sources (leave one source out), so that no source grades constants it took
part in, and then on all, which is what facts/speed should hold. Needs nothing beyond the product.
"""

import argparse
import csv
import gzip
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median

from model_optimizer.core import FitQuestion, Lengths, ModelSpec, MoptError, Workload, plugins
from model_optimizer.core.calibration import Calibration
from model_optimizer.facts import gpus, speed, vllm
from model_optimizer.facts.versions import key
from model_optimizer.planner import calibrate
from model_optimizer.planner import fit as memory_room
from model_optimizer.planner.memory import cache as kv
from model_optimizer.planner.memory import card
from model_optimizer.planner.service import loads, loop, summary
from model_optimizer.planner.service.limits import Limits
from model_optimizer.planner.speed import tables
from model_optimizer.planner.speed.roofline import roofline
from model_optimizer.planner.speed.setup import Setup
from model_optimizer.system import models, step_tables

ROOT = Path(__file__).parents[1]
POINTS = ROOT / "evidence/speed-model/points"
PRECISIONS = {
    "bf16": "bf16", "fp8-block": "fp8_block", "fp8-block (Marlin weight-only on SM80)": "fp8_block",
    "awq-int4": "awq_int4", "awq": "awq_int4", "awq-marlin": "awq_int4", "gptq-int4": "gptq_int4",
    "gptq-marlin-int4": "gptq_int4", "gptq-int8": "int8_weight", "int4-w4a16": "gptq_int4", "fp8-dynamic": "fp8",
    "fp8-static": "fp8_static", "fp8": "fp8", "fp8 weight-only (Marlin)": "fp8", "bf16 + kv fp8_e4m3": "bf16",
}  # fmt: skip
CARDS = {
    "H100-80GB": "H100 SXM5 80GB", "H100": "H100 SXM5 80GB", "A100-SXM-80GB": "A100 SXM4 80GB",
    "A100-80GB": "A100 SXM4 80GB", "A100": "A100 SXM4 80GB", "RTX 4090 24GB": "RTX 4090", "A40 48GB": "A40",
    "L4 24GB": "L4",
}  # fmt: skip

# Two rows cannot be what they say: 1000 prompts of 217 tokens on A100 have a mean time to first token that is
# less than half of their computation at the card's peak (1000 x 217 x 16.4 GFLOP / 312 TFLOPS = 11.4 s, measured
# 3.4 and 4.0 s on average), so they were in the prefix cache from a run before.
FROM_CACHE = {"gps_q8_A100-80GB__bf16", "gps_q8_A100-80GB__awq"}
# By Little's law about 1030 sequences ran at once here: its limits were not the release's for an A100.
BIG_BATCHES = {"gps_q8_A100-80GB__gptq-marlin-int4": {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}}
# gpustack runs vLLM's image, which has FlashInfer; before 0.11.1 it samples with it.
IMAGE = (("VLLM_USE_FLASHINFER_SAMPLER", "1"),)


def exponential(mean: float, least: int, most: int) -> Lengths:
    """What is least assumed of lengths of which a mean and bounds are known: an exponential distribution."""
    rate = 1 / (mean - least)
    shares = [(n + 0.5) / 400 for n in range(400)]
    found = [min(most, least - math.log(1 - share) / rate) for share in shares]
    return Lengths(kind="empirical", numbers=tuple(found))


# ShareGPT as vLLM's load generator draws it: means of 217 and 201 tokens; it leaves out what is shorter than
# 4 tokens, prompts of more than 1024 and pairs of more than 2048.
CHAT = exponential(217, 4, 1024), exponential(201, 4, 2044)


@dataclass(frozen=True, kw_only=True)
class Point:
    source: str
    id: str
    model: str
    scheme: str
    gpu: str
    gpus: int = 1
    engine: str = "vllm"
    version: str | None = None
    kv_bits: int = 16
    eager: bool = False
    prompt: int
    output: int
    concurrency: int | None = None
    burst: int | None = None
    qps: float | None = None
    cached: int = 0
    spread: tuple[int, int] | None = None
    requests: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    utilization: float | None = None
    kv_tokens: int | None = None
    async_scheduling: bool | None = None
    pipeline: int = 1
    poll_steps: int = 1
    env: tuple[tuple[str, str], ...] = ()
    tpot: float | None = None
    tpot_stat: str = "mean"
    throughput: float | None = None
    total: bool = False
    ttft: float | None = None
    ttft_stat: str = "p50"


def number(text: str | None) -> float | None:
    return float(text) if text else None


def points() -> list[Point]:
    found = [*_collected(), *_silybench(), *_polyserve(), *_parallel(), *_silicon(), *_ours()]
    seen: set[str] = set()
    return [p for p in found if not (p.id in seen or seen.add(p.id))]


def fold(p: Point) -> str:
    """What is left out together: all that one party measured."""
    return p.source.partition("-")[0]


# Reported, and never fitted to: the card or the release is in doubt.
DOUBTFUL = ("gpustack-14b-h100", "silicon-sglang-unversioned")


def contradicted(every: list[Point]) -> set[str]:
    """Ids of rows that contradict their neighbours, whatever a model says: more clients of the same server,
    and at most 0.8 of the time per token. Of two the one with more such conflicts goes, else the slower one,
    since a run is disturbed into being slow."""
    groups: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for p in every:
        if p.concurrency and p.tpot and p.source.startswith("silicon"):
            groups[(p.source, p.model, p.scheme, p.gpu, p.gpus, p.prompt, p.output)].append(p)
    dropped: set[str] = set()
    for group in groups.values():
        while pairs := [
            (few, more)
            for few in group
            for more in group
            if few.concurrency < more.concurrency and more.tpot < 0.8 * few.tpot
        ]:
            counts = {p.id: sum(p in pair for pair in pairs) for pair in pairs for p in pair}
            worst = max((p for pair in pairs for p in pair), key=lambda p: (counts[p.id], p.tpot))
            dropped.add(worst.id)
            group.remove(worst)
    return dropped


def rows(name: str) -> list[dict[str, str]]:
    with (POINTS / name).open() as text:
        return list(csv.DictReader(text))


def _collected():
    for row in rows("collected.csv"):
        scheme = PRECISIONS.get(row["precision"])
        if scheme is None or row["engine"] not in ("vllm", "sglang", "tensorrt-llm"):
            continue
        if row["id"] in FROM_CACHE:
            continue
        together = row["load"].startswith("all")
        closed = row["concurrency"]
        model = row["model"].removesuffix("-FP8").removesuffix("-AWQ").removesuffix("-GPTQ-Int4")
        yield Point(
            source="gpustack" if row["id"].startswith("gps") else "polyserve",
            id=row["id"],
            model=model,
            scheme=scheme,
            gpu="H100 PCIe 80GB" if row["id"].startswith("gps_q32_h100") else CARDS[row["gpu"]],
            engine=row["engine"].replace("-", "_"),
            version=row["engine_version"],
            **BIG_BATCHES.get(row["id"], {}),
            env=IMAGE if row["id"].startswith("gps") else (),
            kv_bits=8 if "kv fp8" in row["precision"] else 16,
            prompt=round(float(row["input_len"])),
            output=77 if row["id"].endswith("32k") else round(float(row["output_len"])),
            burst=int(closed) if together else None,
            concurrency=None if together else 1 if closed == "1" else 8,
            requests=None if together else 16,
            utilization=0.9,
            tpot=number(row["tpot_ms"]),
            tpot_stat=row["tpot_stat"],
            throughput=number(row["out_tok_s"] or row["total_tok_s"]),
            total=not row["out_tok_s"],
            ttft=None if together else number(row["ttft_ms"]),
        )


def _silybench():
    for row in rows("silybench.csv"):
        yield Point(
            source="silybench",
            id=f"sily_{row['scheme']}_{row['prompt']}_{row['output']}_{row['concurrency']}",
            model="Qwen/Qwen3-8B",
            scheme=row["scheme"],
            gpu="H100 SXM5 80GB",
            version="0.30.0",
            prompt=int(row["prompt"]),
            output=int(row["output"]),
            concurrency=int(row["concurrency"]),
            requests=int(row["requests"]),
            kv_tokens={"bf16": 377024, "fp8": 430272}[row["scheme"]],
            tpot=number(row["tpot_p95_ms"]),
            tpot_stat="p95",
            throughput=number(row["out_tok_s"]),
            ttft=number(row["ttft_p95_ms"]),
            ttft_stat="p95",
        )


def _polyserve():
    for n, row in enumerate(rows("polyserve.csv")):
        yield Point(
            source="polyserve",
            id=f"poly_{n}",
            model=row["model"],
            scheme=row["scheme"],
            gpu=row["gpu"],
            version=row["version"],
            kv_bits=8 if row["kv"] == "fp8" else 16,
            prompt=int(row["prompt"]),
            output=int(row["output"]),
            concurrency=int(row["concurrency"]),
            requests=int(row["requests"]),
            max_num_seqs=int(row["max_num_seqs"]),
            utilization=float(row["gpu_memory_utilization"]),
            tpot=number(row["tpot_p50_ms"]),
            tpot_stat="p50",
            throughput=number(row["out_tok_s"]),
            ttft=number(row["ttft_p50_ms"]),
        )


def _parallel():
    for n, row in enumerate(rows("gpustack-parallel.csv")):
        yield Point(
            source="gpustack",
            id=f"gpup_{n}",
            model=row["model"],
            scheme=row["scheme"],
            gpu=CARDS[row["gpu"]],
            gpus=int(row["gpus"]),
            version=row["version"],
            prompt=int(row["prompt"]),
            output=int(row["output"]),
            burst=int(row["requests"]),
            utilization=0.9,
            env=IMAGE,
            async_scheduling=row["async_scheduling"] == "yes",
            tpot=number(row["tpot_mean_ms"]),
            throughput=number(row["total_tok_s"]),
            total=True,
        )
    for n, row in enumerate(rows("gpustack-h100.csv")):
        closed = number(row["concurrency"])
        yield Point(
            # This page says SXM; neither its bandwidth nor its rate of computation is that of an SXM card.
            source="gpustack-14b-h100" if row["model"] == "Qwen/Qwen3-14B" else "gpustack",
            id=f"guph_{n}",
            model=row["model"],
            scheme=row["scheme"],
            gpu=CARDS[row["gpu"]],
            gpus=int(row["gpus"]),
            pipeline=int(row["pipeline"]),
            engine=row["engine"],
            version=row["version"],
            prompt=int(row["prompt"]),
            output=int(row["output"]),
            burst=None if closed else int(row["requests"]),
            concurrency=int(closed) if closed else None,
            requests=int(row["requests"]) if closed else None,
            utilization=0.9,
            async_scheduling=row["async_scheduling"] == "yes" if row["engine"] == "vllm" else None,
            env=IMAGE,
            tpot=number(row["tpot_mean_ms"]),
            throughput=number(row["total_tok_s"]),
            total=True,
            ttft=number(row["ttft_mean_ms"]),
            ttft_stat="mean",
        )


def _as_started(row: dict[str, str]) -> dict[str, object]:
    """How the servers of the silicon sample were started: SemiAnalysisAI/InferenceX, benchmarks/*.sh."""
    load = int(row["concurrency"])
    if row["engine"] == "vllm":
        eight = "gpt-oss" not in row["model"] or row["gpu"].startswith("B200")
        wide = "gpt-oss" in row["model"] and row["gpu"].startswith("B200")
        return {
            "kv_bits": 8 if eight else 16,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 512 if wide else max(load, 8),
        }
    if row["engine"] == "tensorrt_llm":
        return {
            "kv_bits": 8,
            "max_num_seqs": 1024,
            "max_num_batched_tokens": 20000 if "gpt-oss" in row["model"] else 10240,
        }
    if row["gpu"].startswith("H200"):
        seqs = 512 if row["prompt"] == row["output"] == "1024" else 256
        return {"utilization": 0.82, "max_num_seqs": seqs, "max_num_batched_tokens": 32768}
    poll = 30 if load >= 16 else 10
    if row["scheme"] == "nvfp4":
        return {
            "kv_bits": 8,
            "utilization": 0.85,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 16384,
            "poll_steps": poll,
        }
    if row["gpus"] == "4":
        return {
            "kv_bits": 8,
            "utilization": 0.95,
            "max_num_seqs": 32,
            "max_num_batched_tokens": 8192,
            "poll_steps": 10,
        }
    return {
        "kv_bits": 8,
        "utilization": 0.82,
        "max_num_seqs": 512 if row["prompt"] == row["output"] else 256,
        "max_num_batched_tokens": 32768,
        "poll_steps": poll,
    }


def _silicon():
    for n, row in enumerate(rows("silicon-sample.csv")):
        version = re.match(r"\d+(\.\d+)+(rc\d+)?", row["version"])
        yield Point(
            # What ran in rows without a release is not known, and many of their waiting times hold a stall.
            source=f"silicon-{row['engine']}"
            + ("-unversioned" if row["engine"] == "sglang" and not row["version"] else ""),
            id=f"sili_{n}",
            model=row["model"],
            scheme=row["scheme"],
            gpu=row["gpu"],
            gpus=int(row["gpus"]),
            engine=row["engine"],
            version=version[0] if version else None,
            prompt=int(row["prompt"]),
            output=int(row["output"]),
            concurrency=int(row["concurrency"]),
            # Ten requests a client, all clients beginning at once.
            requests=10 * int(row["concurrency"]),
            **{"utilization": 0.9, **_as_started(row)},
            tpot=number(row["tpot_mean_ms"]),
            ttft=number(row["ttft_mean_ms"]),
            ttft_stat="mean",
        )


def _ours():
    for path in sorted(ROOT.glob("evidence/vllm-*-h200/*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            start = json.loads(line)
            flags = dict(zip(start["flags"], [*start["flags"][1:], ""], strict=True))
            for number_of, load in enumerate(start.get("loads") or []):
                if "error" in load:
                    continue
                output, qps = load.get("output_tokens", 1), load.get("qps")
                least, most = output if isinstance(output, list) else (output, output)
                usual = "awq_int4" if "awq" in start["id"] else "bf16"
                yield Point(
                    source="ours-h200",
                    id=f"{start['id']}-{number_of}",
                    model=start["model"],
                    scheme=flags.get("--quantization", usual),
                    gpu="H200 SXM 141GB",
                    version=path.parent.name.split("-")[1],
                    kv_bits=8 if flags.get("--kv-cache-dtype") == "fp8" else 16,
                    eager="--enforce-eager" in start["flags"],
                    prompt=load["prompt_tokens"],
                    output=round((least + most) / 2),
                    spread=(least, most) if least != most else None,
                    concurrency=load.get("concurrency"),
                    qps=qps,
                    cached=load.get("shared_prefix", 0),
                    requests=load["requests"],
                    max_num_seqs=int(flags.get("--max-num-seqs", 0)) or None,
                    max_num_batched_tokens=int(flags.get("--max-num-batched-tokens", 0)) or None,
                    kv_tokens=int(start["kv_cache_tokens"]),
                    tpot=load.get("tpot_ms_p50"),
                    tpot_stat="p50",
                    throughput=None if qps else load.get("output_tokens_per_s"),
                    ttft=load.get("ttft_ms_p50"),
                )


@cache
def _model(name: str) -> ModelSpec:
    return models.read(name)


@cache
def _scheme(name: str):
    return plugins.load("model_optimizer.schemes", name).SCHEME


@cache
def setup_of(p: Point) -> Setup:
    version = None
    if p.engine == "vllm":
        version = vllm.release(p.version).version if p.version else None
    return Setup(
        model=_model(p.model),
        gpu=gpus.find(p.gpu),
        scheme=_scheme(p.scheme),
        engine=p.engine,
        version=version,
        kv_bits=p.kv_bits,
        tensor_parallel=p.gpus // p.pipeline,
        pipeline_parallel=p.pipeline,
        eager=p.eager,
    )


@cache
def limits_of(p: Point) -> Limits:
    setup = setup_of(p)
    sequences, tokens = 2048, 8192
    if p.engine == "vllm":
        tier = vllm.release(p.version or "0.12.0").batch_for(
            memory_bytes=setup.gpu.memory_bytes, gpu=setup.gpu.name
        )
        sequences, tokens = tier.max_num_seqs, tier.max_num_batched_tokens
    return Limits(
        max_num_seqs=p.max_num_seqs or sequences,
        max_num_batched_tokens=p.max_num_batched_tokens or tokens,
        kv_cache_tokens=p.kv_tokens or cache_of(p),
    )


def cache_of(p: Point) -> int:
    """Tokens of KV cache, where the source does not say: by the memory model for vLLM, else roughly."""
    setup = setup_of(p)
    if p.engine != "vllm":
        return rough_cache(p)
    question = FitQuestion(
        model=setup.model,
        gpu=card.named(p.gpu),
        version=p.version or "0.12.0",
        scheme=None if p.scheme == "bf16" else setup.scheme,
        kv_cache_dtype="fp8" if p.kv_bits == 8 else "auto",
        tensor_parallel=p.gpus // p.pipeline,
        pipeline_parallel=p.pipeline,
        gpu_memory_utilization=p.utilization,
        max_num_seqs=p.max_num_seqs,
        max_num_batched_tokens=p.max_num_batched_tokens,
        max_model_len=max(p.prompt + p.output + 256, 4096),
        env=dict(p.env) if p.version and key(p.version) < key("0.11.1") else {},
    )
    return max(kv.held(memory_room.fit(question), setup.model), p.prompt + p.output + 16)


def rough_cache(p: Point) -> int:
    """Tokens of KV cache of an engine whose memory is not modelled: what weights and 3 GB leave."""
    setup = setup_of(p)
    total = setup.gpu.visible_memory_bytes or setup.gpu.memory_bytes * 0.985
    share = p.utilization or 0.9
    bits = setup.scheme.weight_bits + (0.5 if setup.scheme.weight_bits == 4 else 0)
    kept = setup.model.embedding_parameters + setup.model.head_parameters
    weights = (setup.model.parameters - kept) * bits / 8 + kept * 2
    # TensorRT-LLM takes its share of what is free once weights are loaded, others of the card.
    whole, of_free = (1.0, share) if p.engine == "tensorrt_llm" else (share, 1.0)
    room = (total * whole - weights / p.gpus - 3e9) * of_free
    each = setup.model.kv_bytes_per_token(p.kv_bits) / min(p.gpus, setup.model.kv_heads)
    return max(int(room / each), p.prompt + p.output + 16)


def predict(p: Point, shared=None, overheads=None, aic=None) -> dict[str, float | None]:
    setup, limits = setup_of(p), limits_of(p)
    overhead = (overheads or {}).get((p.engine, row_of(p)))
    overhead = overhead or speed.engine(p.engine).at(p.version)
    if p.async_scheduling is not None:
        overhead = replace(overhead, overlap=p.async_scheduling)
    own = calibration_of(p) if CALIBRATED else None
    model = roofline(setup, shared=shared, overhead=overhead, calibration=own)
    if TABLES:
        model = tabled(p, overhead)
    limits = replace(
        limits,
        frontend_ms=overhead.frontend_ms,
        frontend_token_us=overhead.frontend_token_us,
        whole_prompts=speed.engine(p.engine).whole_prompts(p.version),
        mixed=overhead.mixed,
        reserve=overhead.reserve,
        ahead=overhead.overlap,
        frontend_busy_ms=(shared or speed.shared()).frontend_busy_ms,
        poll_steps=p.poll_steps,
        cached_tokens=p.cached,
    )
    chat = p.source.startswith("gpustack") and 190 < p.output < 222 and p.prompt < 300
    work = Workload(
        prompt_tokens=CHAT[0] if chat else drawn(p, p.prompt),
        output_tokens=CHAT[1] if chat else drawn(p, p.output),
        requests=p.requests,
    )
    if p.qps:
        load = loads.opened(work, p.qps, p.requests or 200)
    else:
        load = loads.burst(work, p.burst) if p.burst else loads.closed(work, p.concurrency or 1)
    outcome = loop.Replica(model, limits, load.requests, load.follow).run()
    n = summary.summarize(outcome, load)
    rate = n.output_tokens_per_s + (n.input_tokens_per_s if p.total else 0)
    tpot = {"mean": n.tpot_ms.mean, "p50": n.tpot_ms.p50, "p95": n.tpot_ms.p99}[p.tpot_stat]
    ttft = {"mean": n.ttft_ms.mean, "p50": n.ttft_ms.p50, "p95": n.ttft_ms.p99}[p.ttft_stat]
    return {"tpot": tpot, "throughput": rate, "ttft": ttft}


TABLES = False
CALIBRATED = False


# A host's own figures; the two runs of `mopt calibrate` met different hosts.
HOST = ("eager_launch_us", "round_trip_us")


@cache
def calibration_of(p: Point) -> Calibration | None:
    """What `mopt calibrate` found on the machine of a point: on ours alone.

    The GPU's figures are from the second run, which timed short products right; the host's from the run in the
    sitting of the point's load, the first for all in evidence/vllm-*.
    """
    if not p.source.startswith("ours"):
        return None
    answer = json.loads((POINTS.parent / "calibrate-h200.json").read_text())
    if p.source == "ours-h200":
        first = json.loads((POINTS.parent / "calibrate-h200-first.json").read_text())
        answer |= {name: first[name] for name in HOST}
    return calibrate.calibration(answer, gpus.find(p.gpu), date="2026-11-30")


def grid_of(p: Point):
    """The grid of a point, None where there are no tables."""
    return _grid((p.model, p.scheme, p.gpu, p.gpus, p.engine, p.kv_bits, p.eager), p)


GRIDS: dict[tuple, object] = {}


def _grid(place: tuple, p: Point):
    if place not in GRIDS:
        GRIDS[place] = _read_grid(p)
    return GRIDS[place]


def _read_grid(p: Point):
    asked = tables.request(setup_of(p))
    if isinstance(asked, tables.Refused):
        return None
    try:
        return step_tables.load(asked, progress=lambda *_: None)
    except MoptError as error:
        print(p.model, p.gpu, p.engine, p.scheme, error.message, *error.cause, file=sys.stderr)
        return None


def tabled(p: Point, overhead):
    return tables.tables(setup_of(p), grid_of(p), overhead=overhead)


def drawn(p: Point, tokens: int) -> Lengths:
    """The runs of the silicon sample draw lengths between 0.8 and 1 times what they are called by."""
    if p.spread and tokens == p.output:
        return Lengths(kind="uniform", numbers=p.spread)
    if not p.source.startswith("silicon"):
        return Lengths.fixed(tokens)
    return Lengths(kind="uniform", numbers=(max(1, round(0.8 * tokens)), tokens))


def row_of(p: Point) -> str:
    return speed.engine(p.engine).at(p.version).since


def errors(chosen: list[Point], **constants) -> dict[str, dict[str, float]]:
    """log(predicted / measured) by point and quantity."""
    found: dict[str, dict[str, float]] = {}
    for p in chosen:
        got = predict(p, **constants)
        found[p.id] = {
            quantity: math.log(got[quantity] / truth)
            for quantity in ("tpot", "throughput", "ttft")
            if (truth := getattr(p, quantity)) and got[quantity]
        }
    return found


def loss(found: dict[str, dict[str, float]], chosen: list[Point]) -> float:
    """Every source counts the same; TTFT counts a tenth."""
    by: dict[str, list[float]] = defaultdict(list)
    for p in chosen:
        if p.source in DOUBTFUL:
            continue
        for quantity, error in found[p.id].items():
            by[p.source].append(min(abs(error), 1.5) * (0.1 if quantity == "ttft" else 1.0))
    return fmean(fmean(values) for values in by.values())


SHARED = ("weight_only_compute", "weight_only_launch_us", "frontend_busy_ms")
OWN = ("gap_ms", "sequence_us", "frontend_ms")


# Rows of a source that constants are fitted to; all are predicted.
SAMPLE = 6


def fit(chosen: list[Point], rounds: int = 1):
    """Coordinate descent over a few constants, on a thinned sample."""
    thin: dict[str, list[Point]] = defaultdict(list)
    for p in chosen:
        if p.source not in DOUBTFUL:
            thin[p.source].append(p)
    sample = [p for group in thin.values() for p in group[:: max(1, len(group) // SAMPLE)]]
    shared = speed.shared()
    overheads = {(e, row.since): row for e in speed.engines() for row in speed.engine(e).release}
    best = loss(errors(sample, shared=shared, overheads=overheads), sample)
    for _ in range(rounds):
        for name in SHARED:
            for factor in (
                (0.5, 0.75, 1.33, 2.0) if name.endswith(("_ms", "_us")) else (0.88, 0.94, 1.06, 1.12)
            ):
                value = getattr(shared, name) * factor
                trial = replace(shared, **{name: value if name.endswith(("_ms", "_us")) else min(1.0, value)})
                score = loss(errors(sample, shared=trial, overheads=overheads), sample)
                if score < best - 1e-5:
                    best, shared = score, trial
        for place in overheads:
            own = [p for p in sample if (p.engine, row_of(p)) == place]
            if len(own) < 8:
                continue
            others = [p for p in sample if p not in own]
            rest = errors(others, shared=shared, overheads=overheads)
            for name in OWN:
                for factor in (0.5, 0.75, 1.33, 2.0):
                    trial = overheads | {
                        place: replace(overheads[place], **{name: getattr(overheads[place], name) * factor})
                    }
                    score = loss(rest | errors(own, shared=shared, overheads=trial), sample)
                    if score < best - 1e-5:
                        best, overheads = score, trial
    return shared, overheads, best


def spearman(a: list[float], b: list[float]) -> float:
    def ranks(x):
        order = sorted(range(len(x)), key=x.__getitem__)
        found = [0.0] * len(x)
        for rank, i in enumerate(order):
            found[i] = rank
        return found

    ra, rb = ranks(a), ranks(b)
    ma, mb = fmean(ra), fmean(rb)
    top = sum((x - ma) * (y - mb) for x, y in zip(ra, rb, strict=True))
    below = math.sqrt(sum((x - ma) ** 2 for x in ra) * sum((y - mb) ** 2 for y in rb))
    return top / below if below else 1.0


def table(chosen: list[Point], found: dict[str, dict[str, float]], key) -> list[list[str]]:
    by: dict[str, list[Point]] = defaultdict(list)
    for p in chosen:
        by[key(p)].append(p)
    out = []
    for name, group in sorted(by.items()):
        line = [name, str(len(group))]
        for quantity in ("tpot", "throughput", "ttft"):
            values = [found[p.id][quantity] for p in group if quantity in found[p.id]]
            if not values:
                line += ["-", "-", "-"]
                continue
            size = sorted(abs(v) for v in values)
            truth = [getattr(p, quantity) for p in group if quantity in found[p.id]]
            got = [t * math.exp(v) for t, v in zip(truth, values, strict=True)]
            line += [f"{median(size):.1%}", f"{size[min(len(size) - 1, int(0.8 * len(size)))]:.1%}/{median(values):+.1%}",
                     f"{spearman(truth, got):.3f}"]  # fmt: skip
        out.append(line)
    return out


def show(rows: list[list[str]]) -> None:
    head = ["", "n", "tpot", "p80/bias", "rho", "throughput", "p80/bias", "rho", "ttft", "p80/bias", "rho"]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(34 if i == 0 else 13) for i, cell in enumerate(row)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--source")
    parser.add_argument(
        "--fold", help="leave out only this one: gpustack, ours, polyserve, silicon, silybench"
    )
    parser.add_argument("--by", default="source", help="source, engine, gpu, scheme, model, gpus")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--all", action="store_true", help="with rows that contradict their neighbours")
    parser.add_argument(
        "--tables", action="store_true", help="steps from aiconfigurator-core, where it has them"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calibrated", action="store_true", help="with what `mopt calibrate` found")
    asked = parser.parse_args()
    global CALIBRATED
    CALIBRATED = asked.calibrated
    every = points()
    wrong = contradicted(every)
    if not asked.all:
        every = [p for p in every if p.id not in wrong]
        print(f"{len(wrong)} rows of the silicon sample contradict their neighbours and are left out: --all")
    chosen = [p for p in every if asked.source is None or p.source == asked.source]
    if asked.tables:
        global TABLES
        TABLES = True
        chosen = [p for p in chosen if grid_of(p) is not None]
    if asked.fit:
        found: dict[str, dict[str, float]] = {}
        for source in [asked.fold] if asked.fold else sorted({fold(p) for p in chosen}):
            shared, overheads, _ = fit([p for p in every if fold(p) != source])
            found |= errors([p for p in every if fold(p) == source], shared=shared, overheads=overheads)
            print("left out", source, [round(getattr(shared, n), 3) for n in SHARED], file=sys.stderr)
        if asked.fold:
            chosen = [p for p in every if fold(p) == asked.fold]
        shared, overheads, best = (shared, overheads, 0.0) if asked.fold else fit(every)
        print(
            "on all" if not asked.fold else f"without {asked.fold}",
            best,
            {n: round(getattr(shared, n), 3) for n in SHARED},
        )
        for place, row in overheads.items():
            print(place, {n: round(getattr(row, n), 2) for n in OWN})
    else:
        found = errors(chosen)
    show(table(chosen, found, lambda p: p.source))
    if asked.by != "source":
        show(table(chosen, found, lambda p: f"{p.source} {getattr(p, asked.by)}"))
    if asked.rows:
        for p in chosen:
            got = {q: f"{getattr(p, q):.4g} {math.expm1(e):+.0%}" for q, e in found[p.id].items()}
            print(p.id, p.model.split("/")[1], p.scheme, p.gpu, f"tp{p.gpus}", p.engine, p.version, p.prompt, p.output,
                  f"c{p.concurrency}" if p.concurrency else f"burst {p.burst}", got)  # fmt: skip
    if asked.out:
        with (asked.out / "errors.csv").open("w") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["source", "id", "quantity", "log_error"])
            for p in chosen:
                writer.writerows([p.source, p.id, q, f"{e:.4f}"] for q, e in found[p.id].items())


if __name__ == "__main__":
    main()

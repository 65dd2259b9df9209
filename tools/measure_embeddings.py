"""Ways to compute the vectors of one embedding model on one GPU, side by side.

    python3 measure_embeddings.py --out OUT/embed-table.json [--seconds 200] [--only eager,compiled]

The shape is Qwen3-Embedding-0.6B's, the weights are random and the same for all: eager PyTorch in FP16,
PyTorch compiled layer by layer and replayed as one CUDA graph, vLLM's pooling runner in FP16 and in FP8
(its own online quantization), and ONNX Runtime's CUDA provider on the graph that our workers export and cast
to FP16 (`onnxruntime-gpu` and what the workers import are in this interpreter then). Each is asked for 1, 8 and 32 inputs of 512 tokens, one batch after the
other. A row says how long a batch takes, what the GPU drew for it (NVML's energy counter), how busy it was,
the memory in use, and how far the vectors are from those in FP32 by PyTorch. Nothing comes from a network.
Rows that are in the file are not measured again, so that a run that was stopped can go on; the ways are
measured in the order of `--only`. `--tiny` tries the script on a processor with a small shape.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS = 512
BATCHES = (1, 8, 32)
WINDOW_S = 2.5
WARM_S = 0.5
LEAST_CALLS = 8
COMPARED = 8
VOCABULARY = 1000
WAYS = ("eager", "compiled", "vllm-fp16", "vllm-fp8", "onnxruntime-fp32", "onnxruntime-fp16")
PROCESSES = (("eager", "compiled"), *((way,) for way in WAYS[2:]))
WORKERS = Path(__file__).resolve().parents[1] / "src/model_optimizer/workers"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151669,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "vocab_size": 2000,
    "head_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
QUIET = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/embed-table"))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--here", help=argparse.SUPPRESS)  # the ways to measure in this process
    args = parser.parse_args()
    if args.here:
        measure(args.here.split(","), args)
        return
    end = time.monotonic() + args.seconds
    asked = args.only.split(",")
    for group in sorted(PROCESSES, key=lambda group: min(map(asked.index, {*group} & {*asked}), default=99)):
        ways = [way for way in group if way in asked and missing(args.out, way)]
        left = end - time.monotonic()
        if not ways or left < 20:
            say(f"{', '.join(group)}: {'nothing to do' if not ways else 'no time left'}")
            continue
        words = [sys.executable, __file__, "--out", args.out, "--work", args.work, "--here", ",".join(ways)]
        words += ["--tiny"] if args.tiny else []
        began = time.monotonic()
        try:
            code = subprocess.run(words, timeout=left, env={**os.environ, **QUIET}, check=False).returncode
            ended = "" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {left:.0f} s"
        if ended:
            keep(args.out, {"way": ",".join(ways), "error": ended})
        say(f"{', '.join(ways)}: {time.monotonic() - began:.0f} s {ended}")
    if args.out.is_file():
        print(table(rows(args.out)))


def measure(ways: list[str], args: argparse.Namespace) -> None:
    """All rows of some ways, in this process."""
    args.work.mkdir(parents=True, exist_ok=True)
    prepare(args.work, tiny=args.tiny)
    for way in ways:
        before, began = memory_used(), time.monotonic()
        made = torch_way if way in ("eager", "compiled") else onnx_way if "onnx" in way else vllm_way
        ask, facts = made(way, args.work)
        facts["start_s"] = round(time.monotonic() - began, 1)
        distance = agreement(args.work, ask)
        for batch in BATCHES:
            if (way, batch) not in {(row.get("way"), row.get("batch")) for row in rows(args.out)}:
                row = {"way": way, "batch": batch, "tokens": TOKENS, **watched(ask, batch, before)}
                keep(args.out, {**row, **distance, **facts})
        del ask
        gc.collect()
        empty_cache()


def prepare(work: Path, *, tiny: bool) -> None:
    """A folder with random weights, its configuration and a small tokenizer, and what FP32 answers."""
    if (work / "wanted.json").is_file():
        return
    import torch
    import transformers
    from safetensors.torch import save_file

    config = {**CONFIG, **(TINY if tiny else {})}
    write_tokenizer(work)
    (work / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    made = build(transformers.AutoConfig.from_pretrained(work))
    # The layer norms vary, as trained ones do; ones would hide a norm that is left out.
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "norm" in name:
                weight.mul_(1 + 0.2 * torch.randn_like(weight))
    kept = {f"model.{name}": weight.contiguous() for name, weight in made.state_dict().items()}
    save_file(kept, work / "model.safetensors", metadata={"format": "pt"})
    exact = made.float()
    wanted = [forward(exact, torch.tensor([ids], device=device()))[0].tolist() for ids in prompts(COMPARED)]
    (work / "wanted.json").write_text(json.dumps(wanted))
    del made, exact
    gc.collect()
    empty_cache()


def write_tokenizer(work: Path) -> None:
    """vLLM refuses to pool without one. Words are numbers: the inputs are given as token ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    words |= {f"w{n}": n for n in range(4, VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(work / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768, "pad_token": "<pad>",
                "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}  # fmt: skip
    (work / "tokenizer_config.json").write_text(json.dumps(settings))


def prompts(count: int, *, begin: int = 0) -> list[list[int]]:
    """Different ones each, the same in every process."""
    import random

    return [[random.Random(begin + n).randrange(4, VOCABULARY) for _ in range(TOKENS)] for n in range(count)]


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def build(config: Any) -> Any:
    """Qwen3's body in FP16, with random weights, on the GPU."""
    import torch
    import transformers

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    config._attn_implementation = "sdpa"
    try:
        with torch.device(device()):
            return transformers.Qwen3Model(config).eval()
    finally:
        torch.set_default_dtype(usual)


def forward(model: Any, ids: Any) -> Any:
    """The last token's vector, of length one. Without padding the causal mask needs no tensor."""
    import torch

    places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    with torch.inference_mode():
        hidden = model(
            input_ids=ids, position_ids=places, attention_mask={"full_attention": None}, use_cache=False
        ).last_hidden_state
        return torch.nn.functional.normalize(hidden[:, -1].float(), dim=-1)


def torch_way(way: str, work: Path) -> tuple[Callable[[list[list[int]]], Any], dict[str, Any]]:
    import torch
    import transformers
    from safetensors.torch import load_file

    model = build(transformers.AutoConfig.from_pretrained(work))
    weights = load_file(work / "model.safetensors", device=device())
    model.load_state_dict({name.removeprefix("model."): weight for name, weight in weights.items()})
    facts: dict[str, Any] = {"torch": torch.__version__, "transformers": transformers.__version__}
    facts["model_bytes"] = sum(weight.nbytes for weight in weights.values())
    if way == "eager":

        def eager(inputs: list[list[int]]) -> Any:
            return forward(model, torch.tensor(inputs, device=device())).cpu()

        return eager, facts
    return compiled(model), {**facts, "note": "each layer compiled, the whole replayed as one CUDA graph"}


def compiled(model: Any) -> Callable[[list[list[int]]], Any]:
    """One graph a batch size, made at its first call."""
    import torch

    torch._dynamo.config.recompile_limit = 64  # three shapes; past the limit it would go on uncompiled
    for layer in model.layers:
        layer.compile(dynamic=False)
    graphs: dict[int, tuple[Any, Any, Any]] = {}

    def ask(inputs: list[list[int]]) -> Any:
        ids = torch.tensor(inputs, device=device())
        if len(inputs) not in graphs:
            held = ids.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    forward(model, held)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                answer = forward(model, held)
            graphs[len(inputs)] = (graph, held, answer)
        graph, held, answer = graphs[len(inputs)]
        held.copy_(ids)
        graph.replay()
        return answer.cpu()

    return ask


def vllm_way(way: str, work: Path) -> tuple[Callable[[list[list[int]]], Any], dict[str, Any]]:
    import vllm

    options: dict[str, Any] = {"quantization": "fp8"} if way == "vllm-fp8" else {}
    engine = vllm.LLM(
        model=str(work),
        runner="pooling",
        dtype="float16",
        max_model_len=TOKENS,
        max_num_batched_tokens=TOKENS * max(BATCHES),
        max_num_seqs=max(BATCHES),
        kv_cache_memory_bytes=3 * 2**30,
        enable_prefix_caching=False,
        **options,
    )

    def ask(inputs: list[list[int]]) -> Any:
        import torch

        found = engine.embed([{"prompt_token_ids": ids} for ids in inputs], use_tqdm=False)
        return torch.tensor([one.outputs.embedding for one in found])

    return ask, {"vllm": vllm.__version__, "note": "KV cache of 3 GiB, prefix caching off, one process"}


def onnx_way(way: str, work: Path) -> tuple[Callable[[list[list[int]]], Any], dict[str, Any]]:
    """The session that our server opens on a GPU, on the graph that `mopt convert` makes."""
    import numpy as np
    import torch

    sys.path.append(str(WORKERS))
    from _serve_session import open_session

    began = time.monotonic()
    folder = converted(work, way.rpartition("-")[2])
    facts = {"converted_s": round(time.monotonic() - began, 1)}
    session = open_session(folder, {"backend": "onnx_cuda" if device() == "cuda" else "onnx"})

    def ask(inputs: list[list[int]]) -> Any:
        ids = np.asarray(inputs, dtype=np.int64)
        (found,) = session.run(session.outputs, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        return torch.from_numpy(found)

    return ask, {**facts, "onnxruntime": session.version, "model_bytes": folder_bytes(folder)}


def converted(work: Path, scheme: str) -> Path:
    """A folder with model.onnx in `fp32` or `fp16`, made by the workers once."""
    source = work / "embedder"
    if not source.is_dir():
        source.mkdir()
        for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            (source / name).symlink_to(work / name)
        kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
        modules = [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (kind, path) in enumerate(kinds)
        ]
        (source / "modules.json").write_text(json.dumps(modules))
        (source / "1_Pooling").mkdir()
        (source / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    exact = worked("onnx_export", source, work / "onnx-fp32", {"task": "embed", "opset": 20})
    if scheme == "fp32":
        return exact
    return worked("onnx_cast", exact, work / f"onnx-{scheme}", {"scheme": scheme, "least_cosine": 0.999})


def worked(job: str, source: Path, out: Path, request: dict[str, Any]) -> Path:
    if not (out / "mopt.json").is_file():
        out.mkdir(exist_ok=True)
        asked, answer = (out.with_name(f"{out.name}-{kind}.json") for kind in ("request", "result"))
        asked.write_text(json.dumps({"source": str(source), "out": str(out), **request}))
        words = [sys.executable, "-P", WORKERS / f"{job}.py", asked, answer]
        if subprocess.run(words, check=False).returncode:
            raise RuntimeError(answer.read_text() if answer.is_file() else f"{job} failed")
    return out


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("model.onnx*"))


def agreement(work: Path, ask: Callable[[list[list[int]]], Any]) -> dict[str, float]:
    """Cosines with the vectors of FP32."""
    import torch

    wanted = torch.tensor(json.loads((work / "wanted.json").read_text()))
    got = torch.nn.functional.normalize(ask(prompts(COMPARED)).float(), dim=-1)
    cosines = (wanted * got).sum(1)
    return {"cosine_min": round(float(cosines.min()), 6), "cosine_mean": round(float(cosines.mean()), 6)}


def watched(ask: Callable[[list[list[int]]], Any], batch: int, memory_before: int | None) -> dict[str, Any]:
    """Batches one after the other for some seconds, with the GPU's counters beside them."""
    inputs = [prompts(batch, begin=1000 * n) for n in range(4)]
    end = time.perf_counter() + WARM_S
    while time.perf_counter() < end:
        ask(inputs[0])
    ask(inputs[1])
    with Sampler() as sampler:
        times: list[float] = []
        joules, began = energy(), time.perf_counter()
        while time.perf_counter() - began < WINDOW_S or len(times) < LEAST_CALLS:
            start = time.perf_counter()
            ask(inputs[len(times) % len(inputs)])
            times.append(1000 * (time.perf_counter() - start))
        took, spent = time.perf_counter() - began, energy()
    total = len(times) * batch * TOKENS
    used = memory_used()
    spent = None if joules is None or spent is None else spent - joules
    return {
        "batches": len(times),
        "latency_ms": {"p50": round(statistics.median(times), 3), "p99": round(ranked(times, 0.99), 3),
                       "mean": round(statistics.fmean(times), 3)},
        "tokens_per_s": round(total / took),
        "requests_per_s": round(len(times) * batch / took, 2),
        "gpu_utilization": sampler.mean(),
        "power_w": None if spent is None else round(spent / 1000 / took, 1),
        "millijoules_per_token": None if spent is None else round(spent / total, 4),
        "gpu_memory_bytes": None if used is None or memory_before is None else used - memory_before,
    }  # fmt: skip


def ranked(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Sampler:
    """NVML's share of time in which a kernel ran, every 50 ms."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> "Sampler":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def watch(self) -> None:
        while not self.done.wait(0.05):
            if (found := nvml("nvmlDeviceGetUtilizationRates")) is not None:
                self.seen.append(found.gpu)

    def mean(self) -> float | None:
        return round(statistics.fmean(self.seen) / 100, 3) if self.seen else None


_HANDLE: list[Any] = []


def nvml(function: str) -> Any:
    """One answer of NVML about the first GPU, None where there is none."""
    try:
        import pynvml

        if not _HANDLE:
            pynvml.nvmlInit()
            _HANDLE.append(pynvml.nvmlDeviceGetHandleByIndex(0))
        return getattr(pynvml, function)(_HANDLE[0])
    except Exception:  # noqa: BLE001 - no driver, no counter: the row says null
        return None


def energy() -> int | None:
    """Millijoules since the driver was loaded."""
    return nvml("nvmlDeviceGetTotalEnergyConsumption")


def memory_used() -> int | None:
    found = nvml("nvmlDeviceGetMemoryInfo")
    return None if found is None else int(found.used)


def empty_cache() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def rows(out: Path) -> list[dict[str, Any]]:
    return json.loads(out.read_text())["rows"] if out.is_file() else []


def missing(out: Path, way: str) -> bool:
    have = {row.get("batch") for row in rows(out) if row.get("way") == way and "latency_ms" in row}
    return bool(set(BATCHES) - have)


def keep(out: Path, row: dict[str, Any]) -> None:
    """Add a row; the file is whole at any time."""
    found = nvml("nvmlDeviceGetName")
    kept = [
        old
        for old in rows(out)
        if (old.get("way"), old.get("batch"))
        not in {(row.get("way"), row.get("batch")), (row.get("way"), None)}
    ]
    body = {"schema": "embed_table/1", "gpu": found, "shape": CONFIG, "rows": [*kept, row]}
    beside = out.with_name(f"{out.name}.tmp")
    beside.write_text(json.dumps(body, indent=1))
    beside.replace(out)
    say(json.dumps(row))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(found: list[dict[str, Any]]) -> str:
    head = ("way", "batch", "p50 ms", "p99 ms", "tokens/s", "busy", "W", "mJ/token", "GiB", "cosine")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in found:
        if "latency_ms" not in row:
            continue
        cells = (
            row["way"], row["batch"], row["latency_ms"]["p50"], row["latency_ms"]["p99"], row["tokens_per_s"],
            row["gpu_utilization"], row["power_w"], row["millijoules_per_token"],
            None if row["gpu_memory_bytes"] is None else round(row["gpu_memory_bytes"] / 2**30, 2),
            row["cosine_min"],
        )  # fmt: skip
        lines.append("| " + " | ".join("?" if cell is None else str(cell) for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""Writes facts/measured/*.jsonl from the loads in evidence/vllm-*-h200/*.jsonl.gz.

    python tools/measured_from_evidence.py

A load of the evidence gives three rows: the median time per output token, the median time to first token and
the output tokens a second. The loads are closed loops with a fixed number of requests, all counted.
"""

import gzip
import json
import re
from pathlib import Path

from model_optimizer.core import Lengths, Workload, codec
from model_optimizer.core.ledger import LedgerRow
from model_optimizer.facts import measured

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src/model_optimizer/facts/measured"
GPUS = {"h200": "H200 SXM 141GB"}
QUANTITIES = (
    ("tpot_ms.mean", "tpot_ms_mean", "ms"),
    ("ttft_ms.p50", "ttft_ms_p50", "ms"),
    ("output_tokens_per_s", "output_tokens_per_s", "tokens/s"),
)


def settings_of(flags: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for flag, after in zip(flags, [*flags[1:], ""], strict=True):
        if flag.startswith("--"):
            found[flag.removeprefix("--")] = "true" if after.startswith("--") or not after else after
    return found


def main() -> None:
    for folder in sorted((ROOT / "evidence").glob("vllm-*-h*")):
        named = re.fullmatch(r"vllm-([\d.]+)-(\w+)", folder.name)
        if not named or named[2] not in GPUS:
            continue
        gpu, lines = GPUS[named[2]], []
        for path in sorted(folder.glob("*.jsonl.gz")):
            date = re.search(r"\d{4}-\d{2}-\d{2}", path.name)
            for start in map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines()):
                lines += rows_of(start, gpu, named[1], date[0] if date else "", str(path.relative_to(ROOT)))
        out = OUT / f"{measured.slug(gpu)}--vllm-{named[1]}.jsonl"
        out.write_text("".join(codec.line(row) for row in lines))
        print(out.relative_to(ROOT), len(lines), "rows")


def rows_of(start: dict, gpu: str, version: str, date: str, source: str) -> list[LedgerRow]:
    settings = settings_of(start["flags"])
    scheme = settings.pop("quantization", "awq_int4" if "awq" in start["id"] else "bf16")
    found = []
    for load in start.get("loads") or []:
        # Only closed loops of whole prompts say what a step takes.
        if "tpot_ms_mean" not in load or load.get("qps") or load.get("shared_prefix"):
            continue
        output = load["output_tokens"]
        spread = Lengths(kind="uniform", numbers=tuple(output)) if isinstance(output, list) else None
        work = Workload(
            concurrency=load["concurrency"],
            requests=load["requests"],
            prompt_tokens=Lengths.fixed(load["prompt_tokens"]),
            output_tokens=spread or Lengths.fixed(output),
        )
        for quantity, key, unit in QUANTITIES:
            found.append(
                LedgerRow(
                    quantity=quantity,
                    measured=load[key],
                    unit=unit,
                    model=start["model"],
                    gpu=gpu,
                    engine="vllm",
                    version=version,
                    scheme=scheme,
                    workload=work,
                    settings=settings,
                    date=date,
                    source=f"{source} {start['id']}",
                )
            )
    return found


if __name__ == "__main__":
    main()

"""Compare `mopt fit` with starts that were measured, and print the table of evidence/memory-model.

python tools/memory_accuracy.py                every start
python tools/memory_accuracy.py --leave-out    each source predicted without what was learned from it
"""

import argparse
import dataclasses
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_optimizer.core import Fit, FitQuestion, Lora, plugins
from model_optimizer.facts import memory as facts
from model_optimizer.planner.fit import fit
from model_optimizer.planner.memory import card
from model_optimizer.system import models

EVIDENCE = Path(__file__).parent.parent / "evidence"
H200 = EVIDENCE / "vllm-0.25.1-h200"
LOGS = EVIDENCE / "memory-model" / "public-logs.jsonl"
GIB = 2**30
ON_H200 = {"gpu": "h200", "version": "0.25.1"}
# Capture sizes are no question of `mopt fit`: the size of the graphs is left out where they were said.
CAPTURES = "--compilation-config"
HEADS = (
    "start", "engine", "KV tokens", "measured", "error", "weights", "activation", "non-torch", "starts",
)  # fmt: skip
FLAGS = {
    "--max-model-len": int, "--gpu-memory-utilization": float, "--max-num-batched-tokens": int,
    "--max-num-seqs": int, "--kv-cache-dtype": str, "--dtype": lambda word: {"float16": "fp16"}[word],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One start. `outcome` has what its log says; `undetermined` is what the log leaves open."""

    id: str
    source: str
    question: FitQuestion
    outcome: dict[str, Any]
    undetermined: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    case: Case
    fit: Fit

    @property
    def error(self) -> float | None:
        """Of the KV cache, in tokens where the log has them, else in bytes; a share of what was measured."""
        tokens, gib = self.case.outcome.get("kv_cache_tokens"), self.case.outcome.get("kv_cache_gib")
        if tokens:
            return self.fit.kv_cache_tokens / tokens - 1
        return self.fit.kv_cache_bytes / GIB / gib - 1 if gib else None


def cases() -> Iterator[Case]:
    """The starts on an H200 first, then those of public logs."""
    for path in sorted(H200.glob("*.jsonl.gz"), reverse=True):
        yield from _on_h200(path)
    for line in LOGS.read_text().splitlines():
        row = json.loads(line)
        yield Case(
            id=row["id"],
            source=row["source"],
            question=_question(row["question"]),
            outcome=row["outcome"],
            undetermined=row.get("undetermined"),
        )


def _on_h200(path: Path) -> Iterator[Case]:
    """A start that ended after its memory was laid out, for want of a tokenizer, counts as one."""
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        awq = {"scheme": "awq_int4"} if "awq" in row["id"] else {}
        yield Case(
            id=row["id"],
            source="evidence/vllm-0.25.1-h200",
            question=_question({**ON_H200, "model": row["model"], **awq, **_flags(row["flags"])}),
            outcome={
                name: value
                for name, value in (
                    ("started", row["ready"] or bool(row["kv_cache_tokens"])),
                    ("kv_cache_tokens", row["kv_cache_tokens"]),
                    ("kv_cache_gib", row["available_kv_cache_gib"]),
                    ("weights_gib", row.get("weights_gib", row.get("model_gib"))),
                    ("activation_gib", row.get("activation_gib")),
                    ("non_torch_gib", row.get("non_torch_gib")),
                    ("cuda_graph_gib", None if CAPTURES in row["flags"] else row.get("cuda_graph_gib")),
                )
                if value is not None
            },
        )


def _flags(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word == "--enforce-eager":
            found["enforce_eager"] = True
        elif word in (CAPTURES, "--runner"):
            next(rest)
        elif word == "--quantization":
            found["scheme"] = next(rest)
        else:
            found[word.removeprefix("--").replace("-", "_")] = FLAGS[word](next(rest))
    return found


def _question(told: dict[str, Any]) -> FitQuestion:
    choices = dict(told)
    model, gpu, scheme, lora = (choices.pop(name, None) for name in ("model", "gpu", "scheme", "lora"))
    return FitQuestion(
        model=models.read(model, offline=True),
        gpu=card.named(gpu),
        scheme=plugins.load("model_optimizer.schemes", scheme).SCHEME if scheme else None,
        lora=Lora(**lora) if lora else None,
        **choices,
    )


def results(*, leave_out: bool = False) -> list[Result]:
    """All cases; with `leave_out` the measured rows of a case's own source are not known for it."""
    return [Result(case=case, fit=_without(case) if leave_out else fit(case.question)) for case in cases()]


def _without(case: Case) -> Fit:
    full = facts._tables()
    owner = case.source.split("@")[0].split(":")[0].split("#")[0].split(" ")[0]
    kept = tuple(row for row in full.context if not any(owner in source for source in row.source))
    facts._tables.cache_clear()
    original, facts._tables = facts._tables, lambda: dataclasses.replace(full, context=kept)
    try:
        return fit(case.question)
    finally:
        facts._tables = original


def table(found: list[Result]) -> str:
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    for one in found:
        out, got = one.case.outcome, one.fit
        tokens = out.get("kv_cache_tokens")
        measured = (
            f"{int(tokens):,}" if tokens else f"{out['kv_cache_gib']} GiB" if "kv_cache_gib" in out else "-"
        )
        error = "-" if one.error is None else f"{one.error:+.2%}"
        cells = [
            one.case.id + (" (open)" if one.case.undetermined else ""),
            f"{got.engine_version}",
            f"{got.kv_cache_tokens:,}",
            measured,
            error,
            *(
                f"{value / GIB:.2f} / {out.get(name, '-')}"
                for value, name in (
                    (got.weights_bytes, "weights_gib"),
                    (got.activation_bytes, "activation_gib"),
                    (got.non_torch_bytes, "non_torch_gib"),
                )
            ),
            f"{'yes' if got.fits else 'no'} / {'yes' if out['started'] else 'no'}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leave-out", action="store_true")
    print(table(results(leave_out=parser.parse_args().leave_out)), end="")


if __name__ == "__main__":
    main()

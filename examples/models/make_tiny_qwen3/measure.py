"""Measure a trained folder in float32 on the CPU: losses, and what it says.

    python measure.py --model ../tiny-qwen3 [--work WORK] [--texts N]

Prints one JSON object. Each held-out text of heldout.jsonl is read alone, without context, so its loss is
higher than the validation loss, where documents are packed. Losses are in nats per token. Needs torch and
transformers.
"""

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as functional
from train import load, validate
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = (
    "And the LORD said unto Moses,",
    "The function returns",
    "dog, domestic dog (noun):",
    "# Exceptions\n\n",
    "<|im_start|>user\nWhat does river mean?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhat kind of thing is a horse?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhat does `os.path.join` do?<|im_end|>\n<|im_start|>assistant\n",
)
QUESTION = [{"role": "user", "content": "What does river mean?"}]


@torch.no_grad()
def text_loss(model: torch.nn.Module, ids: list[int]) -> float:
    """Summed loss of all tokens of a text but the first."""
    row = torch.tensor([ids])
    logits = model(input_ids=row).logits[0, :-1].float()
    return functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()


def heldout(model: torch.nn.Module, encoded: list[tuple[str, list[int]]]) -> dict[str, float]:
    """Loss per token of each corpus and of all."""
    total, count = Counter(), Counter()
    for corpus, ids in encoded:
        loss = text_loss(model, ids)
        for name in (corpus, "all"):
            total[name] += loss
            count[name] += len(ids) - 1
    return {name: round(total[name] / count[name], 4) for name in count}


def best_unigram(encoded: list[tuple[str, list[int]]]) -> float:
    """The entropy of the texts' own token frequencies: no model without context is better on them."""
    counts = Counter(token for _, ids in encoded for token in ids[1:])
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


@torch.no_grad()
def greedy(model: torch.nn.Module, tokenizer: object, prompt: str, tokens: int = 48) -> str:
    """What the model says after a prompt, special tokens included."""
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(out[0, ids["input_ids"].shape[1] :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, help="folder of corpus.safetensors; without it no validation loss"
    )
    parser.add_argument("--texts", type=int, help="read only the first N held-out texts")
    wanted = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(wanted.model)
    model = AutoModelForCausalLM.from_pretrained(wanted.model, dtype=torch.float32).eval()
    lines = (wanted.model / "heldout.jsonl").read_text(encoding="utf-8").splitlines()[: wanted.texts]
    rows = [json.loads(line) for line in lines]
    encoded = [(row["corpus"], tokenizer(row["text"])["input_ids"]) for row in rows]
    report: dict[str, object] = {
        "texts": len(rows),
        "tokens": sum(len(ids) - 1 for _, ids in encoded),
        "heldout_loss": heldout(model, encoded),
        "best_unigram_loss": round(best_unigram(encoded), 4),
        "chat_prompt": tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True),
        "samples": {prompt: greedy(model, tokenizer, prompt) for prompt in PROMPTS},
    }
    if wanted.work:
        held = load(wanted.work / "corpus.safetensors")["validation"]
        report["validation_loss"] = validate(model, held, 2048)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()

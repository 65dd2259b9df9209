"""Train the tiny Qwen3 on the token file of prepare.py: minutes on one GPU, a few trial steps on a CPU.

    python train.py --work WORK --out FIRST --epochs 10
    python train.py --work WORK --out SECOND --from FIRST --epochs 3.5 --rate 1e-3 --short 256

The second run makes the model good at texts that begin without context: every other step reads short
rows, half of which begin where a line does. Writes config.json, generation_config.json, model.safetensors
(bfloat16) and training.json, which lists the runs with every loss. Losses are in nats per token. Needs torch,
transformers 5, safetensors and numpy.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
import transformers
from safetensors.numpy import load_file
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

CORPORA = ("python", "wordnet", "bible", "chat")
END_OF_TEXT, TURN_END = 0, 2
LINE_START_SHARE = 0.5


@dataclass
class Settings:
    """How one training run goes; `time_limit` is in seconds, `rate` the highest learning rate.

    `length` is the tokens in a row and `short` the tokens in a row of every other step.
    """

    epochs: float
    time_limit: float
    batch: int
    length: int
    rate: float
    short: int | None
    steps: int | None
    decay: float = 0.1
    warm_up: float = 0.03
    seed: int = 1


@dataclass
class Corpus:
    """Tokens of all documents end to end, with each document's length and corpus."""

    tokens: np.ndarray
    lengths: np.ndarray
    corpus: np.ndarray
    starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])

    def packed(self, order: np.ndarray) -> np.ndarray:
        """The documents `order`, one after the other."""
        return np.concatenate(
            [self.tokens[self.starts[at] : self.starts[at] + self.lengths[at]] for at in order]
        )


def load(path: Path) -> dict[str, Corpus]:
    arrays = load_file(path)
    return {
        part: Corpus(arrays[f"{part}_tokens"], arrays[f"{part}_lengths"], arrays[f"{part}_corpus"])
        for part in ("train", "validation")
    }


def new_model() -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=END_OF_TEXT,
        eos_token_id=TURN_END,
        pad_token_id=END_OF_TEXT,
    )
    return Qwen3ForCausalLM(config)


class Rows:
    """Endless training rows: shuffled documents, packed, cut and shuffled anew in each epoch."""

    def __init__(
        self, corpus: Corpus, choice: np.random.Generator, device: torch.device, newlines: np.ndarray
    ) -> None:
        self.corpus, self.choice, self.device, self.newlines = corpus, choice, device, newlines
        self.packed, self.left = np.empty(0, np.int64), np.empty(0, np.int64)

    def batch(self, rows: int, length: int) -> torch.Tensor:
        """`rows` rows of length + 1 tokens; each epoch gives every token once."""
        if len(self.left) < rows:
            order = self.choice.permutation(len(self.corpus.lengths))
            self.packed = self.corpus.packed(order).astype(np.int64)
            shift = int(self.choice.integers(length))
            self.left = self.choice.permutation(np.arange(shift, len(self.packed) - length - 1, length))
        starts, self.left = self.left[:rows], self.left[rows:]
        return self._cut(starts, length)

    def short_batch(self, rows: int, length: int) -> torch.Tensor:
        """`rows` rows from random places, a share of them moved on to where a line begins."""
        starts = self.choice.integers(len(self.packed) - 2 * length - 1, size=rows)
        ahead = self.newlines[self.packed[starts[:, None] + np.arange(length)]]
        to_line = np.where(ahead.any(1), ahead.argmax(1) + 1, 0)
        starts = starts + np.where(self.choice.random(rows) < LINE_START_SHARE, to_line, 0)
        return self._cut(starts, length)

    def _cut(self, starts: np.ndarray, length: int) -> torch.Tensor:
        return torch.from_numpy(self.packed[starts[:, None] + np.arange(length + 1)]).to(self.device)


def line_ends(tokenizer: Path) -> np.ndarray:
    """For each token whether a new line or a new document begins after it."""
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    ends = np.zeros(4096, dtype=bool)
    ends[[at for token, at in vocabulary.items() if token.endswith("\u010a")]] = (
        True  # byte-level BPE's newline
    )
    ends[END_OF_TEXT] = True
    return ends


def token_losses(model: Qwen3ForCausalLM, rows: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none")


def optimizer_of(model: Qwen3ForCausalLM, settings: Settings, fused: bool) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def rate_at(progress: float, settings: Settings) -> float:
    """Linear warm-up, then a cosine to nothing."""
    if progress < settings.warm_up:
        return settings.rate * max(progress, 1e-4) / settings.warm_up
    return settings.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


@torch.no_grad()
def validate(
    model: Qwen3ForCausalLM, corpus: Corpus, length: int, limit: int | None = None
) -> dict[str, float]:
    """Loss per token of each corpus and of all tokens, the documents packed into rows of `length`."""
    model.eval()
    device = next(model.parameters()).device
    totals: dict[str, tuple[float, int]] = {}
    for number, name in enumerate(CORPORA):
        packed = corpus.packed(np.flatnonzero(corpus.corpus == number)).astype(np.int64)
        total, count = 0.0, 0
        for at in list(range(0, len(packed) - 1, length))[:limit]:
            row = torch.from_numpy(packed[at : at + length + 1])[None].to(device)
            with autocast(device):
                losses = token_losses(model, row)
            total, count = total + losses.double().sum().item(), count + losses.numel()
        totals[name] = (total, count)
    model.train()
    mean = {name: total / count for name, (total, count) in totals.items()}
    return mean | {"all": sum(t for t, _ in totals.values()) / sum(c for _, c in totals.values())}


def unigram(train: Corpus, validation: Corpus) -> dict[str, float]:
    """The validation loss of the best model that ignores context: token frequencies of the training text."""
    counts = np.bincount(train.tokens, minlength=4096) + 1.0
    cost = -np.log(counts / counts.sum())
    of_token = np.repeat(validation.corpus, validation.lengths)
    mean = {name: float(cost[validation.tokens[of_token == at]].mean()) for at, name in enumerate(CORPORA)}
    return mean | {"all": float(cost[validation.tokens].mean())}


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def train(
    model: Qwen3ForCausalLM, data: dict[str, Corpus], settings: Settings, newlines: np.ndarray
) -> list[dict[str, float | None]]:
    """Train until the epochs or the time are used up; returns one row of losses for each look."""
    device = next(model.parameters()).device
    supply = Rows(data["train"], np.random.default_rng(settings.seed), device, newlines)
    steps_per_epoch = len(data["train"].tokens) // (settings.batch * settings.length)
    total = settings.steps or int(settings.epochs * steps_per_epoch)
    optimizer = optimizer_of(model, settings, fused=device.type == "cuda")
    recent: list[torch.Tensor] = []
    history: list[dict[str, float | None]] = []
    began = time.perf_counter()
    for step in range(total + 1):
        progress = max(step / total, (time.perf_counter() - began) / settings.time_limit)
        if step % max(1, total // 5) == 0 or progress >= 1:
            row = look(model, data["validation"], settings, step / steps_per_epoch, recent, began)
            history.append(row | {"step": step})
            print(json.dumps(history[-1]), flush=True)
            recent = []
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate_at(progress, settings)
        if settings.short and step % 2:
            rows = supply.short_batch(settings.batch * settings.length // settings.short, settings.short)
        else:
            rows = supply.batch(settings.batch, settings.length)
        with autocast(device):
            loss = token_losses(model, rows).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(loss.detach())
    return history


def look(
    model: Qwen3ForCausalLM,
    held: Corpus,
    settings: Settings,
    epoch: float,
    recent: list[torch.Tensor],
    began: float,
) -> dict[str, float | None]:
    """Losses now: the mean of the steps since the last look, and of a part of the validation text."""
    trained = round(torch.stack(recent).mean().item(), 4) if recent else None
    limit = 1 if settings.steps else 10
    validation = validate(model, held, 2048, limit)["all"]
    return {
        "epoch": round(epoch, 2),
        "train_loss": trained,
        "validation_loss_part": round(validation, 4),
        "seconds": round(time.perf_counter() - began, 1),
    }


def save(model: Qwen3ForCausalLM, out: Path) -> None:
    model.generation_config = GenerationConfig(
        bos_token_id=END_OF_TEXT, eos_token_id=[TURN_END, END_OF_TEXT], pad_token_id=END_OF_TEXT
    )
    model.config.dtype = torch.bfloat16
    model.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of corpus.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--from", dest="start", type=Path, help="go on from this folder's weights")
    parser.add_argument(
        "--tokenizer", type=Path, default=Path(__file__).parent.parent / "tiny-qwen3/tokenizer.json"
    )
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--time-limit", type=float, default=3600, help="seconds of training")
    parser.add_argument("--batch", type=int, default=16, help="rows in a step")
    parser.add_argument("--length", type=int, default=2048, help="tokens in a row")
    parser.add_argument("--short", type=int, help="tokens in a row of every other step")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--steps", type=int, help="stop after so many steps (a trial)")
    wanted = parser.parse_args()
    settings = Settings(
        epochs=wanted.epochs,
        time_limit=wanted.time_limit,
        batch=wanted.batch,
        length=wanted.length,
        rate=wanted.rate,
        short=wanted.short,
        steps=wanted.steps,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    data = load(wanted.work / "corpus.safetensors")
    model, runs = new_model(), []
    if wanted.start:
        model = Qwen3ForCausalLM.from_pretrained(wanted.start, dtype=torch.float32)
        runs = json.loads((wanted.start / "training.json").read_text())["runs"]
    model.to(device).train()
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{parameters} parameters, {len(data['train'].tokens)} tokens, {device}, torch {torch.__version__}",
        flush=True,
    )
    history = train(model, data, settings, line_ends(wanted.tokenizer))
    model.to(torch.bfloat16)
    wanted.out.mkdir(parents=True, exist_ok=True)
    save(model, wanted.out)
    model.to(torch.float32)
    run = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "settings": vars(settings),
        "history": history,
        "validation_loss": validate(model, data["validation"], 2048, 1 if settings.steps else None),
    }
    report = {
        "parameters": parameters,
        "unigram_loss": unigram(data["train"], data["validation"]),
        "runs": [*runs, run],
    }
    (wanted.out / "training.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(run["validation_loss"], indent=2))


if __name__ == "__main__":
    main()

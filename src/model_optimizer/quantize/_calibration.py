"""Which texts a quantizer looks at, how many and how long: the user's own, sampled the same way each time.

A file is JSONL (`{"text": ...}`, `{"messages": [...]}`, `{"prompt": ..., "completion": ...}`, or lines of an
OpenAI batch file) or plain text with a blank line between texts. Without one the worker uses built-in texts,
which is weaker and said so.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from model_optimizer.core import HostError, ModelSpec, Scheme, UsageError
from model_optimizer.core.units import show_bytes
from model_optimizer.system import user_text

FEWEST, MOST = 64, 512
"""Samples that are taken when nobody says how many: llm-compressor's own default is 512."""

VARIATION = 0.5
"""Standard deviation between samples, as a share of the mean, of what is measured on them. ASSUMED."""

LENGTH, SHORT = 2048, 512
"""Tokens of a sample where no workload says them: of a language model, of others. ASSUMED."""

COPIES = 4
"""16-bit activations of a sample that are held at once: inputs and outputs of a layer, twice. ASSUMED."""

SHARE_OF_MEMORY = 0.5
"""Of the memory that is free, what calibration data may take."""

LARGEST_FILE = 1 << 30
SEED = 0
SYNTAX = (
    'one JSON object a line, {"text": ...} or {"messages": [{"role": ..., "content": ...}]}, or plain texts '
    "with blank lines between them"
)

Sample = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`samples` None means the built-in set. `because` says where count and length are from."""

    count: int = FEWEST
    length: int = LENGTH
    samples: tuple[Sample, ...] | None = None
    source: str = "built-in texts"
    because: str = "default"

    @property
    def tokens(self) -> int:
        return self.count * self.length

    def request(self) -> Mapping[str, object]:
        """What a worker is handed."""
        return {
            "count": self.count,
            "length": self.length,
            "samples": None if self.samples is None else list(self.samples),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a user says of calibration; None leaves it to the workload, the gate and the memory.

    `workload_tokens` is what nearly all requests stay below, prompt and answer together.
    """

    path: Path | None = None
    count: int | None = None
    length: int | None = None
    workload_tokens: int | None = None


def calibration(
    wanted: Wanted, model: ModelSpec, scheme: Scheme, memory_available_bytes: int | None
) -> Calibration:
    """Settle how many samples of what length, and read them. Raises UsageError and HostError."""
    length, why = _length(wanted, model)
    count, reason = (wanted.count, "as asked") if wanted.count else _count(scheme)
    ceiling = _ceiling(model, length, memory_available_bytes)
    if ceiling is not None and count > ceiling:
        if wanted.count or ceiling < 1:
            raise _too_large(model, count, length, memory_available_bytes or 0)
        count, reason = ceiling, f"{count} would not fit into the memory"
    because = f"{count} samples: {reason}; {length} tokens: {why}"
    plain = Calibration(count=count, length=length, because=because)
    if wanted.path is None:
        return plain
    found = sample(read(wanted.path), count, asked=wanted.count, path=wanted.path)
    if len(found) < count:
        few = f"all {len(found)} samples of the file, {count} were wanted: {reason}"
        because = f"{few}; {length} tokens: {why}"
    return replace(plain, count=len(found), samples=found, source=str(wanted.path), because=because)


def read(path: Path) -> tuple[Sample, ...]:
    """Every sample of a file. Raises UsageError for one that is empty or not understood."""
    text = user_text.read(path, largest_bytes=LARGEST_FILE, hint=(SYNTAX,), reference="calibration-data")
    lines = path.suffix in (".jsonl", ".ndjson") or text.lstrip().startswith("{")
    found = tuple(_json_lines(text, path) if lines else _paragraphs(text))
    if not found:
        raise UsageError(
            f"`{path}` holds no calibration text",
            hint=(SYNTAX,),
            reference="calibration-data",
        )
    return found


def sample(samples: tuple[Sample, ...], count: int, *, asked: int | None, path: Path) -> tuple[Sample, ...]:
    """`count` of them, drawn without replacement, the same ones each time and in the order of the file."""
    if asked is not None and len(samples) < asked:
        raise UsageError(
            f"`{path}` holds {len(samples)} samples, {asked} were asked for",
            hint=(f"ask for fewer: --samples {len(samples)}", "or add texts"),
            reference="calibration-data",
        )
    if len(samples) <= count:
        return samples
    kept = sorted(random.Random(SEED).sample(range(len(samples)), count))
    return tuple(samples[place] for place in kept)


def _length(wanted: Wanted, model: ModelSpec) -> tuple[int, str]:
    most = model.max_position or 1 << 20
    if wanted.length:
        if wanted.length > most:
            raise UsageError(
                f"samples of {wanted.length} tokens are longer than the model's {most} positions",
                hint=(f"--calibration-length {most} is the longest",),
            )
        return wanted.length, "as asked"
    if wanted.workload_tokens:
        return min(wanted.workload_tokens, most), "what nearly all requests of the workload stay below"
    usual = LENGTH if model.task == "generate" else SHORT
    return min(usual, most), "assumed: no workload was named (--prompt-tokens, --output-tokens)"


def _count(scheme: Scheme) -> tuple[int, str]:
    """As many as bring the error of a mean over samples below what the scheme's limit leaves to lose."""
    slack = 1 - scheme.gate.recovery
    wanted = math.ceil((1.96 * VARIATION / slack) ** 2)
    count = max(FEWEST, min(MOST, wanted))
    within = 1.96 * VARIATION / math.sqrt(count)
    return count, f"a mean over them is known to within {within:.0%}, and {slack:.0%} may be lost"


def _ceiling(model: ModelSpec, length: int, memory_available_bytes: int | None) -> int | None:
    if memory_available_bytes is None:
        return None
    return int(SHARE_OF_MEMORY * memory_available_bytes) // sample_bytes(model, length)


def sample_bytes(model: ModelSpec, length: int) -> int:
    """Memory that one sample takes while a layer is calibrated."""
    return max(1, COPIES * 2 * length * model.hidden_size)


def _too_large(model: ModelSpec, count: int, length: int, available: int) -> HostError:
    wanted = count * sample_bytes(model, length)
    return HostError(
        f"{count} samples of {length} tokens need about {show_bytes(wanted)} of memory",
        cause=(f"{show_bytes(available)} are available, half of which may hold calibration data",),
        hint=("take fewer (--samples) or shorter ones (--calibration-length)",),
        reference="out-of-memory",
    )


def _paragraphs(text: str) -> Iterator[Sample]:
    for part in text.replace("\r\n", "\n").split("\n\n"):
        if part.strip():
            yield {"text": part.strip()}


def _json_lines(text: str, path: Path) -> Iterator[Sample]:
    for number, line in enumerate(text.split("\n"), start=1):  # other separators may stand inside of strings
        if not line.strip():
            continue
        try:
            found = user_text.parse(line)
        except ValueError as error:
            raise _unread(path, number, f"not JSON: {error}") from error
        made = _sample(cast("Mapping[str, object]", found)) if isinstance(found, dict) else None
        if made is None:
            raise _unread(path, number, "neither text, messages nor prompt is in it")
        yield made


def _sample(row: Mapping[str, object]) -> Sample | None:
    """Text, or messages of role and content."""
    body = row.get("body")
    if isinstance(body, dict):  # a line of a batch file: the request is inside
        return _sample(cast("Mapping[str, object]", body))
    messages = row.get("messages")
    if isinstance(messages, list):
        turns = [_turn(turn) for turn in cast("list[object]", messages)]
        return {"messages": turns} if turns and all(turns) else None
    text = row.get("text")
    if isinstance(text, str):
        return {"text": text} if text.strip() else None
    prompt = row.get("prompt")
    answer = row.get("completion", row.get("response", ""))
    if isinstance(prompt, str) and prompt.strip():
        if isinstance(answer, str) and answer:
            return {
                "messages": [
                    {"role": "user", "content": prompt}, {"role": "assistant", "content": answer},
                ]
            }  # fmt: skip
        return {"text": prompt}
    return None


def _turn(turn: object) -> dict[str, str] | None:
    if not isinstance(turn, dict):
        return None
    row = cast("dict[str, object]", turn)
    role, content = row.get("role"), _content(row.get("content"))
    return {"role": role, "content": content} if isinstance(role, str) and content is not None else None


def _content(content: object) -> str | None:
    """Text, or OpenAI's list of parts where all are text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    found = [_part(part) for part in cast("list[object]", content)]
    texts = [text for text in found if text is not None]
    return "\n".join(texts) if texts and len(texts) == len(found) else None


def _part(part: object) -> str | None:
    fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
    text = fields.get("text")
    return text if fields.get("type") == "text" and isinstance(text, str) else None


def _unread(path: Path, number: int, why: str) -> UsageError:
    return UsageError(
        f"line {number} of `{path}` is no calibration sample",
        cause=(why,),
        hint=(SYNTAX,),
        reference="calibration-data",
    )

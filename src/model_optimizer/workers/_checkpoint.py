"""Reading a model folder that came from outside: every defect is one clear error before work begins.

Standard library only, so that a broken file is found before torch is even imported.
"""

import json
import re
import shutil
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from _contract import fail

LARGEST_HEADER = 100 << 20
LARGEST_JSON = 64 << 20
NO_LIMIT = 1_000_000
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "generation_config.json",
    "config_sentence_transformers.json",
)


def read_json(path: Path) -> Any:
    """A JSON file from outside; fails when it is missing, too large or not JSON."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            fail("broken-checkpoint", f"`{path.name}` is too large to be what its name says")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail("broken-checkpoint", f"`{path.name}` cannot be read", [error.strerror or str(error)])
    except ValueError as error:
        fail("broken-checkpoint", f"`{path.name}` is not JSON", [str(error)])


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model that this product can take: not quantized, no code of its own."""
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or not config.get("architectures"):
        fail(
            "broken-checkpoint",
            "`config.json` names no architecture",
            hint=["the field `architectures` says which class of transformers loads the model"],
        )
    if found := config.get("quantization_config"):
        method = found.get("quant_method", "unknown") if isinstance(found, dict) else "unknown"
        fail(
            "already-quantized",
            f"the checkpoint is quantized already (`{method}`)",
            hint=["start from the original checkpoint"],
        )
    return config


def check_weights(folder: Path) -> int:
    """All safetensors files are there and whole. Returns the bytes of their tensors."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            fail("broken-checkpoint", f"`{index.name}` has no weight_map")
        names = sorted({str(name) for name in weight_map.values()})
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        fail(
            "no-weights",
            f"`{folder.name}` holds no safetensors",
            hint=["pickle files are not loaded; convert them with safetensors first"],
        )
    return sum(_check_file(folder, name) for name in names)


def _check_file(folder: Path, name: str) -> int:
    """The header is valid and the file is as long as the header says. Returns the bytes of its tensors."""
    path = folder / Path(name).name
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size + 1
            header = stream.read(length) if length <= min(size, LARGEST_HEADER) else b""
    except OSError as error:
        fail("broken-checkpoint", f"`{name}` cannot be read", [error.strerror or str(error)])
    try:
        tensors = {k: v for k, v in json.loads(header).items() if k != "__metadata__"}
        ends = [int(tensor["data_offsets"][1]) for tensor in tensors.values()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        fail("broken-checkpoint", f"`{name}` has no valid safetensors header", hint=_again(name))
    data = max(ends, default=0)
    if size != 8 + length + data:
        fail(
            "broken-checkpoint",
            f"`{name}` is cut short or has more than it should",
            [f"the header promises {8 + length + data} bytes, the file has {size}"],
            _again(name),
        )
    return data


def _again(name: str) -> list[str]:
    return [f"download `{name}` again"]


def copy_files(source: Path, out: Path, names: Iterable[str]) -> None:
    """Copy those of the named files that are there."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


def require_tokenizer(folder: Path) -> None:
    """Fail before any work when nothing can turn text into tokens."""
    if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.txt")):
        return
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return
    fail(
        "no-tokenizer",
        f"`{folder.name}` holds no tokenizer",
        hint=["put the model's tokenizer.json beside its weights"],
    )


def require_loaded(missing: Sequence[str], *, unused: str) -> None:
    """Weights that a checkpoint lacks are drawn at random by transformers: refuse that.

    `unused` is a pattern of names that do not matter for the answer.
    """
    gone = sorted(name for name in missing if not re.search(unused, name))
    if gone:
        shown = ", ".join(gone[:3])
        fail(
            "broken-checkpoint",
            f"the checkpoint lacks {len(gone)} weight{'s' if len(gone) > 1 else ''} of its architecture",
            [f"{shown}{' ...' if len(gone) > 3 else ''}"],
            ["check that config.json names the architecture that was saved"],
        )


def most_tokens(folder: Path, config: dict[str, Any]) -> int:
    """The longest input: the least of what the position table, the tokenizer and the model card allow."""
    # GPT-2 and its kin have another word for it.
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    limits = [int(positions)] if isinstance(positions, int) else []
    # RoBERTa and its kin count positions from the padding token on: 514 places hold 512 tokens.
    if limits and config.get("model_type") in {"roberta", "xlm-roberta", "camembert", "mpnet"}:
        limits = [limits[0] - int(config.get("pad_token_id") or 0) - 1]
    for name, key in (
        ("tokenizer_config.json", "model_max_length"),
        ("sentence_bert_config.json", "max_seq_length"),
    ):
        if (folder / name).is_file():
            found = read_json(folder / name).get(key)
            if isinstance(found, int | float) and 0 < found < NO_LIMIT:
                limits.append(int(found))
    return min(limits, default=512)

"""Files of outputs, written as a worker writes them but without any package."""

import json
import math
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

from model_optimizer.verify import outputs
from model_optimizer.verify.outputs import Outputs

ABOUT = {"engine": "made", "dtype": "float32", "quantized": False, "token_ids": None}
CODES = {"d": "F64", "f": "F32", "i": "I32", "B": "U8"}
Rows = Sequence[Sequence[float]]


def write(path: Path, arrays: Mapping[str, tuple[str, Rows | Sequence[float]]], about: object) -> None:
    """A safetensors file: name -> (code of array.array, rows or plain numbers)."""
    header: dict[str, object] = {"__metadata__": {"about": json.dumps(about)}}
    data = b""
    for name, (code, rows) in arrays.items():
        flat = [x for row in rows for x in row] if rows and isinstance(rows[0], Sequence) else rows
        shape = [len(rows), len(rows[0])] if rows and isinstance(rows[0], Sequence) else [len(rows)]
        content = array(code, flat).tobytes()  # pyright: ignore[reportArgumentType]
        header[name] = {
            "dtype": CODES[code],
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def vectors(path: Path, rows: Rows, name: str = "vectors", **about: object) -> Outputs:
    """Outputs of an embedding model, or of a cross-encoder with name `scores`."""
    offsets = [2 * i for i in range(len(rows) + 1)]
    write(path, {"offsets": ("i", offsets), name: ("f", rows)}, {**ABOUT, **about})
    return outputs.read(path)


def logits(
    path: Path,
    texts: Sequence[Rows],
    tokens: Sequence[Sequence[int]],
    of: Sequence[Rows] = (),
    **about: object,
) -> Outputs:
    """Outputs of a language model from full logits of each position, three best kept.

    `tokens` holds all tokens of each text, so one more than it has positions. `of` holds the logits of
    the reference, whose best tokens the candidate is asked for.
    """
    columns: dict[str, list[list[float]]] = {"top_ids": [], "top_logits": [], "asked_logits": []}
    true: list[float] = []
    sums: list[float] = []
    finite: list[float] = []
    for number, rows in enumerate(texts):
        for at, row in enumerate(rows):
            good = all(map(math.isfinite, row))
            row = row if good else [0.0] * len(row)
            best = sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:3]
            asked = best
            if of:
                theirs = of[number][at]
                asked = sorted(range(len(row)), key=lambda i, row=theirs: (-row[i], i))[:3]
            columns["top_ids"].append([float(i) for i in best])
            columns["top_logits"].append([row[i] for i in best])
            columns["asked_logits"].append([row[i] for i in asked])
            true.append(row[tokens[number][at + 1]])
            sums.append(math.log(sum(math.exp(x) for x in row)))
            finite.append(float(good))
    offsets = [0]
    for text in tokens:
        offsets.append(offsets[-1] + len(text))
    write(
        path,
        {
            "offsets": ("i", offsets),
            "tokens": ("i", [token for text in tokens for token in text]),
            "finite": ("B", [int(x) for x in finite]),
            "true_logit": ("f", true),
            "logsumexp": ("d", sums),
            "top_ids": ("i", [[int(x) for x in row] for row in columns["top_ids"]]),
            "top_logits": ("f", columns["top_logits"]),
            "asked_logits": ("f", columns["asked_logits"]),
        },
        {**ABOUT, **about},
    )
    return outputs.read(path)

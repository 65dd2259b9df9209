"""What a model answered to a set of texts: the file that a worker wrote, read without any package.

workers/_outputs.py says what the file holds. It is in safetensors format, which is a length, a JSON
header and plain little-endian numbers.
"""

import json
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import ToolError

_CODES = {"F64": "d", "F32": "f", "I32": "i", "U8": "B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    """How a candidate's own tokenizer cut the texts, against the reference's; `first` is a text's index."""

    checked: int
    different: int
    first: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Arrays by name, all texts in a row; `offsets` says where each text begins among the tokens.

    `dtype` is the narrowest float type of the weights that computed them; `quantized` whether integer or
    narrower weights took part. `normalised` says that logits are log-probabilities, which a server gives.
    """

    engine: str
    dtype: str
    quantized: bool
    normalised: bool = False
    token_check: TokenCheck | None
    arrays: Mapping[str, "array[float] | array[int]"]
    widths: Mapping[str, int]

    @property
    def texts(self) -> int:
        return len(self.arrays["offsets"]) - 1

    def positions(self, text: int) -> range:
        """The rows of one text: one for each of its tokens but the first."""
        offsets = self.arrays["offsets"]
        return range(int(offsets[text]) - text, int(offsets[text + 1]) - text - 1)

    def row(self, name: str, index: int) -> "array[float] | array[int]":
        """One row of a two-dimensional array."""
        width = self.widths[name]
        return self.arrays[name][index * width : (index + 1) * width]

    def known(self, index: int) -> Sequence[float]:
        """For each asked token of a row: 1, or 0 when its logit is only an upper bound."""
        if "asked_known" in self.arrays:
            return self.row("asked_known", index)
        return [1] * self.widths["asked_logits"]

    @property
    def bounded(self) -> int:
        """How many asked tokens have no more than an upper bound."""
        return list(self.arrays.get("asked_known", ())).count(0)


def read(path: Path) -> Outputs:
    """Read a file of outputs. ToolError when it is not one."""
    try:
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        header = cast("dict[str, Any]", json.loads(content[8 : 8 + length]))
        about = cast("dict[str, Any]", json.loads(header.pop("__metadata__")["about"]))
        arrays = {name: _numbers(content, 8 + length, entry) for name, entry in header.items()}
        check = about.get("token_ids")
        return Outputs(
            engine=about["engine"],
            dtype=about["dtype"],
            quantized=about["quantized"],
            normalised=about.get("normalised", False),
            token_check=TokenCheck(**check) if check else None,
            arrays=arrays,
            widths={name: entry["shape"][1] for name, entry in header.items() if len(entry["shape"]) == 2},
        )
    except (OSError, struct.error, ValueError, KeyError, TypeError) as error:
        raise ToolError(
            "the outputs of a verification run cannot be read",
            cause=(f"{path}: {error}",),
            hint=("verify again; the disk may be full",),
        ) from error


def _numbers(content: bytes, start: int, entry: Mapping[str, Any]) -> "array[float] | array[int]":
    first, last = entry["data_offsets"]
    numbers: array[float] | array[int] = array(_CODES[entry["dtype"]])
    numbers.frombytes(content[start + first : start + last])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers

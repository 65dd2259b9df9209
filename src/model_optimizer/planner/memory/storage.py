"""How many bytes a weight takes in a number format: packed elements, scales and zero points.

Layouts are those of vLLM's loaders: compressed-tensors, AWQ and GPTQ (both repacked for Marlin), FP8 with
one scale a tensor, channel or block, NVFP4 and MXFP4 with a scale a group, bitsandbytes with one a block.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil

from model_optimizer.core import ModelSpec, Scheme, Weight

MIXED_BITS = 6
"""Bits a weight that `mixed` has by default (schemes/mixed.py)."""

_LINEAR = frozenset({"attention", "mlp", "expert", "shared_expert", "mixer"})
_WORDS = re.compile(r"\((\w{1,40}(?:\|\w{1,40}){0,15})\)")
# Names that no tool quantizes, whatever the scheme.
_NEVER = re.compile(r"(?:conv1d|A_log|dt_bias|norm|\.sinks|\.bias|relative_attention_bias)(?:\.weight)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """`bits` a weight in groups of `group` along its inputs (0: a scale for each output, None: one a tensor).

    `scale_bytes` of one scale, `zero_bits` of one zero point, `block` when groups are squares.
    """

    name: str
    bits: int
    group: int | None = None
    scale_bytes: float = 0.0
    zero_bits: int = 0
    block: bool = False
    activation_bits: int = 16

    def bytes(self, out: int, into: int) -> int:
        """Of one matrix."""
        return ceil(out * into * self.bits / 8) + self.side_bytes(out, into)

    def side_bytes(self, out: int, into: int) -> int:
        """Scales and zero points of one matrix."""
        if not self.scale_bytes:
            return 0
        if self.group is None:
            scales = 1
        elif not self.group:
            scales = out
        elif self.block:
            scales = ceil(out / self.group) * ceil(into / self.group)
        else:
            scales = out * ceil(into / self.group)
        return ceil(scales * (self.scale_bytes + self.zero_bits / 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What the weights of one model are stored in. `plain_bytes` is for what is not quantized."""

    plain_bytes: int
    storage: Storage | None
    excluded: tuple[str, ...] = ()
    word: str = "bf16"

    def quantizes(self, weight: Weight) -> bool:
        """Linear layers, unless they are excluded by name; never embedding, head, router or norms."""
        if self.storage is None or weight.role not in _LINEAR or len(weight.shape) < 2:
            return False
        return not _NEVER.search(weight.name) and not _is_excluded(weight.name, self.excluded)


def precision(spec: ModelSpec, scheme: Scheme | None, plain_bytes: int) -> Precision:
    """From the scheme asked for, else from what the checkpoint says of itself."""
    found = spec.quantization
    own = found is not None and (scheme is None or scheme.name == found.scheme)
    excluded = found.excluded if own and found else ()
    if scheme is None and found is None:
        return Precision(plain_bytes=plain_bytes, storage=None, word={2: "16-bit", 4: "fp32"}[plain_bytes])
    name = scheme.name if scheme else (found.scheme or found.method) if found else ""
    group = found.group_size if own and found else scheme.group_for(_columns(spec)) if scheme else None
    zeros = found.zero_points if own and found else None
    made = _of_scheme(name, group, zeros=_has_zeros(name, spec) if zeros is None else zeros)
    return Precision(plain_bytes=plain_bytes, storage=made or _of_method(spec), excluded=excluded, word=name)


def _has_zeros(name: str, spec: ModelSpec) -> bool:
    """Where nobody says it: AWQ and our GPTQ have zero points, but none for experts."""
    return name in ("awq_int4", "gptq_int4") and not spec.experts


def _columns(spec: ModelSpec) -> set[int]:
    """Inputs of the linear layers, which groups must divide."""
    form = Precision(plain_bytes=2, storage=Storage(name="any", bits=8))
    return {weight.shape[-1] for weight in spec.weights if form.quantizes(weight)}


def _of_scheme(name: str, group: int | None, *, zeros: bool) -> Storage | None:
    """`group` 0 is a scale for each row, None that it is not known."""
    match name:
        case "fp8" | "fp8_kv" | "int8":
            return Storage(name=name, bits=8, group=0, scale_bytes=4, activation_bits=8)
        case "int8_weight":
            return Storage(name=name, bits=8, group=group or 0, scale_bytes=2 if group else 4)
        case "fp8_static":
            return Storage(name=name, bits=8, group=None, scale_bytes=4, activation_bits=8)
        case "fp8_block":
            return Storage(
                name=name, bits=8, group=group or 128, scale_bytes=4, block=True, activation_bits=8
            )
        case "awq_int4" | "gptq_int4":
            size, zero_bits = 128 if group is None else group, 4 if zeros else 0
            return Storage(name=name, bits=4, group=size, scale_bytes=2, zero_bits=zero_bits)
        case "int4_rtn":
            return Storage(name=name, bits=4, group=128 if group is None else group, scale_bytes=2)
        case "nvfp4":
            return Storage(name=name, bits=4, group=16, scale_bytes=1, activation_bits=4)
        case "mxfp4":
            return Storage(name=name, bits=4, group=32, scale_bytes=1)
        case "mixed":  # its budget of bits counts the scales
            return Storage(name=name, bits=MIXED_BITS, activation_bits=8)
        case _:
            return None


def _of_method(spec: ModelSpec) -> Storage | None:
    """A checkpoint in a format that is none of the schemes: its bits, and what its method keeps beside."""
    found = spec.quantization
    if found is None or not found.weight_bits:
        return None
    group = found.group_size if found.group_size is not None else 128
    scale = 4 if found.method == "bitsandbytes" else 2
    activations = found.activation_bits or 16
    return Storage(
        name=found.method, bits=found.weight_bits, group=group, scale_bytes=scale, activation_bits=activations
    )


def _is_excluded(name: str, patterns: tuple[str, ...]) -> bool:
    """Patterns are paths, whole words of them, or globs; `re:` is read as one where it says no more.

    A pattern comes from a checkpoint, so it is never run as a regular expression. What names layer 0
    stands for the kind of layer, since ours are named with `*`.
    """
    numbered = name.replace("*", "0")
    return any(fnmatchcase(n, glob) for p in patterns for glob in _globs(p) for n in (name, numbered))


@lru_cache(maxsize=4096)
def _globs(pattern: str) -> tuple[str, ...]:
    if pattern.startswith("re:"):
        plain = pattern[3:].replace("\\\\.", ".").replace("\\.", ".").replace(".*", "*")
        found = _alternatives(plain.removeprefix("^").removesuffix("$"))
        if any(set(one) & set("()[]{}|+?\\^$") for one in found):
            return ()
        return tuple(glob for one in found for glob in (one, f"{one}.weight", f"{one}.*"))
    plain = pattern.removesuffix(".weight").replace("[", "[[]")
    return (plain, f"{plain}.*", f"*.{plain}", f"*.{plain}.*")


def _alternatives(pattern: str) -> tuple[str, ...]:
    """The first group of plain words, `(gate|up)_proj`, written out; what is no such group stays as it is."""
    group = _WORDS.search(pattern)
    if group is None:
        return (pattern,)
    return tuple(pattern[: group.start()] + word + pattern[group.end() :] for word in group[1].split("|"))

"""How parallelism divides a model: what one GPU holds of each weight, and which divisions engines refuse."""

from dataclasses import dataclass
from math import ceil, prod

from model_optimizer.core import ModelSpec, UsageError, Weight

# Rows of embedding and head are padded to a multiple of this before they are divided (vLLM's
# DEFAULT_VOCAB_PADDING_SIZE).
VOCABULARY_PADDING = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Tensor parallelism `tensor` within a stage, `stages` of pipeline parallelism.

    `experts` is over how many GPUs whole experts are spread; 0 when each expert is cut as other layers are.
    """

    tensor: int = 1
    stages: int = 1
    experts: int = 0

    @property
    def gpus(self) -> int:
        return self.tensor * self.stages


def require_possible(spec: ModelSpec, split: Split) -> None:
    """UsageError when the model cannot be divided so. The vocabulary is padded, heads are not."""
    if split.tensor < 1 or split.stages < 1:
        raise UsageError("parallelism starts at 1", hint=("pass --tp 1 or leave it out",))
    if spec.heads and spec.heads % split.tensor:
        raise UsageError(
            f"{spec.heads} attention heads cannot be divided by --tp {split.tensor}",
            cause=("each GPU takes the same number of heads",),
            hint=(f"possible: {', '.join(map(str, _divisors(spec)))}",),
            reference="parallel",
        )
    for group in spec.groups:
        if group.kind in ("mha", "gqa", "mqa") and not _shares(group.kv_heads, split.tensor):
            raise UsageError(
                f"{group.kv_heads} key-value heads and --tp {split.tensor} do not divide each other",
                cause=("key-value heads are either divided or repeated whole",),
                hint=(f"possible: {', '.join(map(str, _divisors(spec)))}",),
                reference="parallel",
            )
    if split.stages > spec.layers:
        raise UsageError(
            f"{spec.layers} layers cannot fill {split.stages} stages",
            hint=(f"pass --pp {spec.layers} or less",),
            reference="parallel",
        )


def _shares(kv_heads: int, tensor: int) -> bool:
    return not kv_heads or kv_heads % tensor == 0 or tensor % kv_heads == 0


def _divisors(spec: ModelSpec) -> list[int]:
    kv = [g.kv_heads for g in spec.groups if g.kind in ("mha", "gqa", "mqa")]
    return [
        n for n in range(1, min(spec.heads, 64) + 1) if not spec.heads % n and all(_shares(k, n) for k in kv)
    ]


def local_kv_heads(kv_heads: int, split: Split) -> int:
    """Key-value heads of one GPU: divided, or one that is repeated."""
    return max(1, kv_heads // split.tensor)


def local_layers(layers: int, split: Split) -> int:
    """Layers of the fullest stage."""
    return ceil(layers / split.stages)


def padded_vocabulary(spec: ModelSpec) -> int:
    return ceil(spec.vocab_size / VOCABULARY_PADDING) * VOCABULARY_PADDING


def local_shape(weight: Weight, spec: ModelSpec, split: Split) -> tuple[int, ...]:
    """The shape of one copy on one GPU."""
    if weight.role == "expert" and split.experts:
        *many, out, into = weight.shape
        return (*(ceil(count / split.experts) for count in many), out, into)
    rows, *rest = weight.shape
    if weight.role in ("embedding", "head") and weight.split == "rows" and rows == spec.vocab_size:
        return (ceil(padded_vocabulary(spec) / split.tensor), *rest)
    match weight.split:
        case "rows":
            return (ceil(rows / split.tensor), *rest)
        case "columns" if rest:
            return (rows, *rest[:-1], ceil(rest[-1] / split.tensor))
        case "kv_heads" if spec.kv_heads:
            return (rows // spec.kv_heads * local_kv_heads(spec.kv_heads, split), *rest)
        case _:
            return weight.shape


def local_copies(weight: Weight, spec: ModelSpec, split: Split) -> int:
    """Copies in the fullest stage: those of layers are divided, embedding and head are in one stage each."""
    if weight.role == "expert" and split.experts and len(weight.shape) == 2:
        return ceil(weight.copies / split.experts / split.stages)
    if split.stages == 1 or weight.copies < spec.layers or weight.role in ("embedding", "head", "vision"):
        return weight.copies
    return ceil(weight.copies / spec.layers * local_layers(spec.layers, split))


def local_elements(weight: Weight, spec: ModelSpec, split: Split) -> int:
    return prod(local_shape(weight, spec, split)) * local_copies(weight, spec, split)

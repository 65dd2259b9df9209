"""The matrix products of a model as an engine runs them: fused, and divided over the GPUs.

Engines compute the projections of query, key and value in one product, and gate and up in another. What
shares its input and is divided in the same way is one product here.
"""

from dataclasses import dataclass

from model_optimizer.core import ModelSpec, Weight

IDLE = frozenset({"embedding", "norm", "mtp", "vision"})
HEADS = frozenset({"head", "pooler", "classifier"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`copies` products of tokens x `inputs` by `inputs` x `outputs`, on one GPU.

    `head` runs only for the positions whose token is wanted.
    """

    role: str
    inputs: int
    outputs: int
    copies: int
    head: bool = False

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """`layers` layers of routed experts on one GPU; `parameters` are those of one expert there.

    `here` of the layer's `experts` live on this GPU; a token visits `active` of all.
    """

    layers: int
    experts: int
    here: int
    active: int
    hidden: int
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    dense: tuple[Product, ...]
    mixtures: tuple[Mixture, ...]


def products(model: ModelSpec, *, tensor_parallel: int = 1, expert_parallel: bool = False) -> Products:
    """What one GPU computes in a step of the model. Raises nothing: sizes are rounded up."""
    weights = [w for w in model.weights if len(w.shape) >= 2 and w.role not in IDLE]
    if model.task == "vision":
        weights = [w for w in model.weights if len(w.shape) >= 2 and w.role not in IDLE - {"vision"}]
    fused: dict[tuple[str, int, int, bool], int] = {}
    for weight in (w for w in weights if w.role != "expert"):
        inputs, outputs = _share(weight, tensor_parallel, model.kv_heads)
        place = (weight.role, inputs, weight.copies, weight.split in ("rows", "kv_heads"))
        fused[place] = fused.get(place, 0) + outputs
    dense = [
        Product(role=role, inputs=inputs, outputs=outputs, copies=copies, head=role in HEADS)
        for (role, inputs, copies, _), outputs in fused.items()
    ]
    if model.task == "generate" and not any(p.role == "head" for p in dense):
        dense.append(
            Product(
                role="head",
                inputs=model.hidden_size,
                outputs=-(-model.vocab_size // tensor_parallel),
                copies=1,
                head=True,
            )
        )
    return Products(dense=tuple(dense), mixtures=_mixtures(model, weights, tensor_parallel, expert_parallel))


def _share(weight: Weight, parts: int, kv_heads: int) -> tuple[int, int]:
    """(inputs, outputs) of the part that one GPU holds."""
    outputs, inputs = weight.shape[0], 1
    for size in weight.shape[1:]:
        inputs *= size
    match weight.split:
        case "rows":
            return inputs, -(-outputs // parts)
        case "kv_heads":
            return inputs, -(-outputs // min(parts, max(kv_heads, 1)))
        case "columns":
            return -(-inputs // parts), outputs
        case _:
            return inputs, outputs


def _mixtures(
    model: ModelSpec, weights: list[Weight], parts: int, expert_parallel: bool
) -> tuple[Mixture, ...]:
    routed = [w for w in weights if w.role == "expert"]
    if not routed or model.experts is None:
        return ()
    experts = model.experts
    layers = experts.layers or model.layers
    everything = sum(w.parameters for w in routed)
    each = everything // (layers * experts.routed)
    return (
        Mixture(
            layers=layers,
            experts=experts.routed,
            here=-(-experts.routed // parts) if expert_parallel else experts.routed,
            active=experts.active,
            hidden=model.hidden_size,
            parameters=each if expert_parallel else -(-each // parts),
        ),
    )

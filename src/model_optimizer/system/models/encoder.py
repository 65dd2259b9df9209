"""Encoders: every token sees every other, and no cache is kept."""

from model_optimizer.core import LayerGroup, Weight

from .config import Config
from .parts import linear, norm
from .shape import Shape


def encoder_layers(
    layer: str,
    hidden: int,
    width: int,
    layers: int,
    *,
    names: tuple[str, ...],
    norms: tuple[str, ...],
    bias: bool = True,
) -> list[Weight]:
    """Layers with four square projections (`names` 1 to 4), a plain feed-forward (5 and 6) and two norms."""
    *inputs, output, up, down = names
    made: list[Weight] = []
    for name in inputs:
        made += linear(f"{layer}.{name}", hidden, hidden, layers, role="attention", split="rows", bias=bias)
    made += linear(f"{layer}.{output}", hidden, hidden, layers, role="attention", split="columns", bias=bias)
    made += linear(f"{layer}.{up}", width, hidden, layers, role="mlp", split="rows", bias=bias)
    made += linear(f"{layer}.{down}", hidden, width, layers, role="mlp", split="columns", bias=bias)
    for name in norms:
        made += norm(f"{layer}.{name}", hidden, layers, bias=True)
    return made


def encoder(
    config: Config, weights: list[Weight], *, hidden: int, layers: int, width: int, heads: int, vocab: int,
    max_position: int | None, windows: tuple[tuple[int | None, int], ...] = (), in_transformers: bool = True,
) -> Shape:  # fmt: skip
    """The shape of an encoder; `vocab` is 0 for one of images."""
    if hidden % heads:
        config.contradiction(f"a hidden size of {hidden} with {heads} heads")
    head_dim = hidden // heads
    return Shape(
        layers=layers,
        hidden_size=hidden,
        intermediate_size=width,
        vocab_size=vocab,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        attention="mha",
        weights=tuple(weights),
        max_position=max_position,
        tied=config.architecture.endswith("ForMaskedLM"),
        groups=tuple(
            LayerGroup(kind="mha", layers=count, window=window, kv_heads=heads, head_dim=head_dim)
            for window, count in windows or ((None, layers),)
        ),
        in_transformers=in_transformers,
    )

"""Mixture-of-experts layers."""

from dataclasses import dataclass

from model_optimizer.core import Experts, Weight

from .config import Config
from .parts import Mlp, linear, mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Where the experts sit and how large they are.

    `shared_intermediate` is the width of all shared experts of a layer together, 0 without;
    `shared_count` is how many they are said to be. `block` is the module that holds them all.
    """

    layers: int
    routed: int
    active: int
    intermediate: int
    shared_count: int = 0
    shared_intermediate: int = 0
    shared_gate: bool = False
    block: str = "mlp"
    experts: str = "experts.*"
    names: tuple[str, ...] = ()
    kind: Mlp = "gated"
    router: str = "gate"
    router_bias: bool = False
    shared: str = "shared_experts"
    bias: bool = False

    @property
    def noun(self) -> Experts:
        return Experts(
            routed=self.routed, active=self.active, shared=self.shared_count, layers=self.layers,
            intermediate_size=self.intermediate,
        )  # fmt: skip

    def weights(self, layer: str, hidden: int) -> list[Weight]:
        """`layer` is the path of a layer with `*` for its number."""
        block = _path(layer, self.block)
        made = linear(
            f"{block}.{self.router}", self.routed, hidden, self.layers, role="router", bias=self.router_bias
        )
        made += mlp(
            _path(block, self.experts),
            hidden,
            self.intermediate,
            self.layers * self.routed,
            kind=self.kind,
            role="expert",
            names=self.names,
            active=self.layers * min(self.active, self.routed),
            bias=self.bias,
        )
        if self.shared_intermediate:
            made += mlp(
                f"{block}.{self.shared}",
                hidden,
                self.shared_intermediate,
                self.layers,
                kind="plain" if self.kind == "plain" else "gated",
                role="shared_expert",
            )
        if self.shared_gate:
            made += linear(f"{block}.shared_expert_gate", 1, hidden, self.layers, role="router")
        return made


def _path(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def sparse_layers(config: Config, layers: int) -> int:
    """How many layers have experts, by the keys of Qwen: every `decoder_sparse_step`th one, some excepted."""
    step = config.count("decoder_sparse_step", default=1)
    dense = set(config.numbers("mlp_only_layers"))
    if step == 0:
        return 0
    return sum(1 for layer in range(layers) if (layer + 1) % step == 0 and layer not in dense)


def layers_after_dense(config: Config, layers: int, *, default: int = 0) -> int:
    """How many layers have experts, by the keys of DeepSeek: the first few are dense."""
    first = config.count("first_k_dense_replace", default=default)
    every = config.count("moe_layer_freq", default=1) or 1
    return sum(1 for layer in range(first, layers) if layer % every == 0)

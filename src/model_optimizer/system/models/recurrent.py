"""Layers with a state instead of a growing cache: Mamba, Mamba 2 and gated linear attention."""

from dataclasses import dataclass

from model_optimizer.core import LayerGroup, Weight

from .config import Config
from .parts import linear, norm, vector


def _state_bytes(config: Config, *, convolution: int, state: int) -> int:
    """The convolution's window is kept in 16 bits, the state as the config says, else in 16 bits too."""
    said = config.text("mamba_ssm_dtype") or config.text("mamba_ssm_cache_dtype")
    return 2 * convolution + (4 if said == "float32" else 2) * state


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Sizes of a Mamba 2 mixer."""

    hidden: int
    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    bias: bool = False
    convolution_bias: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def weights(self, prefix: str, layers: int) -> list[Weight]:
        made = linear(
            f"{prefix}.in_proj",
            self.inner + self.convolved + self.heads,
            self.hidden,
            layers,
            role="mixer",
            split="rows",
            bias=self.bias,
        )
        made += _convolution(
            f"{prefix}.conv1d", self.convolved, self.kernel, layers, bias=self.convolution_bias
        )
        for name in ("A_log", "D", "dt_bias"):
            made += vector(f"{prefix}.{name}", self.heads, layers, role="mixer", split="rows")
        made += norm(f"{prefix}.norm", self.inner, layers)
        return made + linear(
            f"{prefix}.out_proj",
            self.hidden,
            self.inner,
            layers,
            role="mixer",
            split="columns",
            bias=self.bias,
        )

    def group(self, config: Config, layers: int) -> LayerGroup:
        kept = _state_bytes(
            config,
            convolution=self.convolved * (self.kernel - 1),
            state=self.heads * self.head_dim * self.state,
        )
        return LayerGroup(kind="linear", layers=layers, state_bytes=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Sizes of a Mamba mixer. `norms` are those that Jamba puts on the step and the two projections."""

    hidden: int
    inner: int
    state: int
    kernel: int
    rank: int
    bias: bool = False
    convolution_bias: bool = True
    norms: bool = False

    def weights(self, prefix: str, layers: int) -> list[Weight]:
        made = linear(
            f"{prefix}.in_proj",
            2 * self.inner,
            self.hidden,
            layers,
            role="mixer",
            split="rows",
            bias=self.bias,
        )
        made += _convolution(f"{prefix}.conv1d", self.inner, self.kernel, layers, bias=self.convolution_bias)
        made += linear(
            f"{prefix}.x_proj", self.rank + 2 * self.state, self.inner, layers, role="mixer", split="columns"
        )
        made += linear(
            f"{prefix}.dt_proj", self.inner, self.rank, layers, role="mixer", split="rows", bias=True
        )
        made += [
            Weight(
                name=f"{prefix}.A_log",
                shape=(self.inner, self.state),
                copies=layers,
                role="mixer",
                split="rows",
            )
        ]
        made += vector(f"{prefix}.D", self.inner, layers, role="mixer", split="rows")
        if self.norms:
            made += norm(f"{prefix}.dt_layernorm", self.rank, layers)
            made += norm(f"{prefix}.b_layernorm", self.state, layers) + norm(
                f"{prefix}.c_layernorm", self.state, layers
            )
        return made + linear(
            f"{prefix}.out_proj",
            self.hidden,
            self.inner,
            layers,
            role="mixer",
            split="columns",
            bias=self.bias,
        )

    def group(self, config: Config, layers: int) -> LayerGroup:
        kept = _state_bytes(config, convolution=self.inner * (self.kernel - 1), state=self.inner * self.state)
        return LayerGroup(kind="linear", layers=layers, state_bytes=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Sizes of gated delta-rule linear attention (Qwen3-Next, Qwen3.5)."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @classmethod
    def of(cls, config: Config) -> "GatedDelta":
        return cls(
            hidden=config.need("hidden_size"),
            key_heads=config.need("linear_num_key_heads"),
            value_heads=config.need("linear_num_value_heads"),
            key_dim=config.need("linear_key_head_dim"),
            value_dim=config.need("linear_value_head_dim"),
            kernel=config.need("linear_conv_kernel_dim"),
        )

    def weights(self, prefix: str, layers: int, *, fused: bool) -> list[Weight]:
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        inputs = (
            {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * self.value_heads}
            if fused
            else {
                "in_proj_qkv": 2 * keys + values,
                "in_proj_z": values,
                "in_proj_b": self.value_heads,
                "in_proj_a": self.value_heads,
            }
        )
        made: list[Weight] = []
        for name, out in inputs.items():
            made += linear(f"{prefix}.{name}", out, self.hidden, layers, role="mixer", split="rows")
        made += _convolution(f"{prefix}.conv1d", 2 * keys + values, self.kernel, layers, bias=False)
        for name in ("A_log", "dt_bias"):
            made += vector(f"{prefix}.{name}", self.value_heads, layers, role="mixer", split="rows")
        made += norm(f"{prefix}.norm", self.value_dim, layers)
        return made + linear(f"{prefix}.out_proj", self.hidden, values, layers, role="mixer", split="columns")

    def group(self, config: Config, layers: int) -> LayerGroup:
        convolved = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        kept = _state_bytes(
            config,
            convolution=convolved * (self.kernel - 1),
            state=self.value_heads * self.key_dim * self.value_dim,
        )
        return LayerGroup(kind="linear", layers=layers, state_bytes=kept)


def _convolution(name: str, channels: int, kernel: int, layers: int, *, bias: bool) -> list[Weight]:
    made = [
        Weight(name=f"{name}.weight", shape=(channels, 1, kernel), copies=layers, role="mixer", split="rows")
    ]
    return made + vector(f"{name}.bias", channels, layers, role="mixer", split="rows") if bias else made

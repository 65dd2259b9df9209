"""Gemma 4: wider heads in the layers that see everything, per-layer embeddings or experts in some."""

from dataclasses import replace

from model_optimizer.core import LayerGroup, Weight
from model_optimizer.system.models import vision
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import Style, finish
from model_optimizer.system.models.families.gemma import NORMS
from model_optimizer.system.models.moe import Moe
from model_optimizer.system.models.parts import Heads, attention, linear, mlp, norm, table, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("gemma4", "gemma4_text")


def shape(config: Config) -> Shape:
    multimodal = config.model_type == "gemma4"
    style = Style(prefix="model.language_model" if multimodal else "model", tied=True)
    layers, sizes = config.layers(), Heads.of(config, head_dim=config.count("head_dim", default=256))
    layer = f"{style.prefix}.{style.layer}"
    weights, groups = _attention(config, f"{layer}.self_attn", sizes, layers)
    for name in NORMS:
        weights += norm(f"{layer}.{name}", sizes.hidden, layers)
    intermediate, borrowing = config.need("intermediate_size"), config.count("num_kv_shared_layers")
    wide = borrowing if config.flag("use_double_wide_mlp") else 0
    weights += mlp(f"{layer}.mlp", sizes.hidden, intermediate, layers - wide)
    if wide:
        weights += mlp(f"{layer}.mlp", sizes.hidden, 2 * intermediate, wide)
    weights += _per_layer_inputs(config, style, sizes.hidden, layers)
    moe = _experts(config, layers)
    if moe:
        weights += moe.weights(layer, sizes.hidden)
        weights += vector(f"{layer}.router.scale", sizes.hidden, layers, role="router")
        weights += vector(f"{layer}.router.per_expert_scale", moe.routed, layers, role="router")
        for name in (
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
            "pre_feedforward_layernorm_2",
        ):
            weights += norm(f"{layer}.{name}", sizes.hidden, layers)
    made = finish(
        config,
        style,
        sizes,
        layers=layers,
        weights=weights,
        groups=groups,
        moe=moe,
        intermediate=intermediate,
    )
    return replace(made, encoder=vision.gemma4(config, sizes.hidden)) if multimodal else made


def _attention(
    config: Config, prefix: str, sizes: Heads, layers: int
) -> tuple[list[Weight], tuple[LayerGroup, ...]]:
    """Both kinds of layers. The last `num_kv_shared_layers` borrow keys and values and keep no cache."""
    wide = _wide(config, sizes, layers)
    sliding, full, sliding_kept, full_kept = _kinds(config, layers)
    window = config.whole("sliding_window", default=512)
    weights: list[Weight] = []
    for each, all_layers, kept, one in (
        (sizes, sliding, sliding_kept, False),
        (wide, full, full_kept, config.flag("attention_k_eq_v")),
    ):
        for weight in attention(prefix, each, all_layers, qk_norm="head", bias=config.flag("attention_bias")):
            part = weight.name.removeprefix(f"{prefix}.").partition(".")[0]
            if part == "v_proj" and one:
                continue
            copies = kept if part in ("k_proj", "v_proj", "k_norm") else all_layers
            weights.append(replace(weight, copies=copies))
    return weights, (sizes.group(sliding_kept, window), wide.group(full_kept))


def _wide(config: Config, sizes: Heads, layers: int) -> Heads:
    """Layers that see everything: keys of their own, or (transformers 5) one entry a layer that differs."""
    wide = replace(
        sizes,
        head_dim=config.count("global_head_dim", default=sizes.head_dim),
        kv_heads=config.count("num_global_key_value_heads", default=sizes.kv_heads),
    )
    apart = config.per_layer()
    if not apart:
        return wide
    kinds = config.names("layer_types") or []
    full = {str(number) for number, kind in enumerate(kinds) if kind == "full_attention"}
    first = next(iter(apart.values()))
    if set(apart) != full or any(entry != first for entry in apart.values()):
        config.misunderstood("`per_layer_config` that sets other layers apart than those of full attention")
    for key in first.keys() - {"head_dim", "num_key_value_heads"}:
        config.misunderstood(f"`{key}` in `per_layer_config`")
    return replace(
        sizes,
        head_dim=first.get("head_dim", sizes.head_dim),
        kv_heads=first.get("num_key_value_heads", sizes.kv_heads),
    )


def _kinds(config: Config, layers: int) -> tuple[int, int, int, int]:
    """Layers that slide and that see everything, and how many of each keep a cache of their own."""
    borrowing = config.count("num_kv_shared_layers")
    if borrowing > layers:
        config.contradiction(f"{borrowing} of {layers} layers borrow keys and values")
    given = config.keys.get("layer_types")
    if isinstance(given, dict):
        if borrowing:
            config.misunderstood("`layer_types` as counts, while some layers borrow keys and values")
        counts = config.layer_kinds(layers) or {}
        sliding, full = counts.get("sliding_attention", 0), counts.get("full_attention", 0)
        return sliding, full, sliding, full
    names = config.names("layer_types") or [
        "full_attention" if (layer + 1) % 6 == 0 or layer == layers - 1 else "sliding_attention"
        for layer in range(layers)
    ]
    if len(names) != layers:
        config.contradiction(f"`layer_types` names {len(names)} layers, and there are {layers}")
    for kind in set(names) - {"sliding_attention", "full_attention"}:
        config.misunderstood(f"layers of type `{kind}`")
    kept = names[: max(0, len(names) - borrowing)]
    return tuple(
        part.count(kind) for part in (names, kept) for kind in ("sliding_attention", "full_attention")
    )  # pyright: ignore[reportReturnType]


def _per_layer_inputs(config: Config, style: Style, hidden: int, layers: int) -> list[Weight]:
    """The second embedding that gives every layer an input of its own (in the E models)."""
    size = config.whole("hidden_size_per_layer_input", default=256, condensed=0) or 0
    if not size:
        return []
    layer, vocab = f"{style.prefix}.{style.layer}", config.count("vocab_size_per_layer_input", default=262144)
    made = table(f"{style.prefix}.embed_tokens_per_layer.weight", vocab, layers * size)
    made += linear(f"{style.prefix}.per_layer_model_projection", layers * size, hidden, 1, role="mlp")
    made += norm(f"{style.prefix}.per_layer_projection_norm", size, 1)
    made += linear(f"{layer}.per_layer_input_gate", size, hidden, layers, role="mlp")
    made += linear(f"{layer}.per_layer_projection", hidden, size, layers, role="mlp")
    return made + norm(f"{layer}.post_per_layer_input_norm", hidden, layers)


def _experts(config: Config, layers: int) -> Moe | None:
    routed = config.count("num_experts")
    if not config.flag("enable_moe_block", default=config.condensed and bool(routed)):
        return None
    active = config.whole("top_k_experts", "num_experts_per_tok")
    if active is None and config.condensed:
        active = 8
        config.notes.append(
            "8 experts a token: the one published Gemma 4 with experts (26B-A4B) uses as many"
        )
    return Moe(
        layers=layers, routed=config.need("num_experts"), active=active or config.need("top_k_experts"),
        intermediate=config.need("moe_intermediate_size"), block="", router="router.proj", experts="experts",
        kind="fused",
    )  # fmt: skip

"""Encoders of images and their projectors, as weights. None when the config does not give their size."""

from collections.abc import Callable
from dataclasses import replace

from model_optimizer.core import Weight

from .config import Config
from .parts import linear, mlp, norm, vector

Weights = tuple[Weight, ...]


def _encoder(config: Config, build: Callable[[Config], list[Weight]]) -> Weights | None:
    """Build from `vision_config`; without it, or when it lacks a size, say so and return None."""
    vision = config.inner("vision_config")
    if vision is None:
        config.notes.append("the image encoder is not counted: the config has no `vision_config`")
        return None
    made = build(vision)
    if vision.missing or vision.wrong:
        lacks = ", ".join([*vision.missing, *vision.wrong])
        config.notes.append(f"the image encoder is not counted: `vision_config` lacks {lacks}")
        return None
    return tuple(replace(weight, role="vision") for weight in made)


def _linear(name: str, out: int, into: int, copies: int, *, bias: bool = True) -> list[Weight]:
    return linear(name, out, into, copies, role="vision", split="rows", bias=bias)


def _patches(name: str, out: int, *shape: int, bias: bool) -> list[Weight]:
    made = [Weight(name=f"{name}.weight", shape=(out, *shape), role="vision")]
    return made + vector(f"{name}.bias", out, 1, role="vision") if bias else made


def _four(prefix: str, names: tuple[str, ...], size: int, copies: int, *, bias: bool) -> list[Weight]:
    """Square projections of attention."""
    return [weight for name in names for weight in _linear(f"{prefix}.{name}", size, size, copies, bias=bias)]


def siglip_for_gemma3(config: Config, text: int) -> Weights | None:
    """SigLIP and the projection of Gemma 3."""

    def build(vision: Config) -> list[Weight]:
        hidden, layers, patch = (
            vision.need("hidden_size"),
            vision.need("num_hidden_layers"),
            vision.need("patch_size"),
        )
        width, places = vision.need("intermediate_size"), (vision.need("image_size") // patch) ** 2
        root, projector = "vision_tower.vision_model", "multi_modal_projector"
        layer = f"{root}.encoder.layers.*"
        made = _patches(
            f"{root}.embeddings.patch_embedding",
            hidden,
            vision.count("num_channels", default=3),
            patch,
            patch,
            bias=True,
        )
        made += [
            Weight(name=f"{root}.embeddings.position_embedding.weight", shape=(places, hidden), role="vision")
        ]
        made += _four(
            f"{layer}.self_attn", ("q_proj", "k_proj", "v_proj", "out_proj"), hidden, layers, bias=True
        )
        made += mlp(f"{layer}.mlp", hidden, width, layers, kind="plain", names=("fc1", "fc2"), bias=True)
        for name in ("layer_norm1", "layer_norm2"):
            made += norm(f"{layer}.{name}", hidden, layers, bias=True)
        made += norm(f"{root}.post_layernorm", hidden, 1, bias=True)
        if vision.flag("vision_use_head", default=True):
            made += _attention_head(f"{root}.head", hidden, width)
        made += [Weight(name=f"{projector}.mm_input_projection_weight", shape=(hidden, text), role="vision")]
        return made + norm(f"{projector}.mm_soft_emb_norm", hidden, 1)

    return _encoder(config, build)


def _attention_head(prefix: str, hidden: int, width: int) -> list[Weight]:
    """SigLIP's own pooling: one query that attends to all places."""
    made = [Weight(name=f"{prefix}.probe", shape=(1, 1, hidden), role="vision")]
    made += [Weight(name=f"{prefix}.attention.in_proj_weight", shape=(3 * hidden, hidden), role="vision")]
    made += vector(f"{prefix}.attention.in_proj_bias", 3 * hidden, 1)
    made += _linear(f"{prefix}.attention.out_proj", hidden, hidden, 1)
    made += norm(f"{prefix}.layernorm", hidden, 1, bias=True)
    return made + mlp(f"{prefix}.mlp", hidden, width, 1, kind="plain", names=("fc1", "fc2"), bias=True)


def pixtral(config: Config, text: int) -> Weights | None:
    """Pixtral's encoder and the projector with a patch merger of Mistral 3."""

    def build(vision: Config) -> list[Weight]:
        hidden, layers, patch = (
            vision.need("hidden_size"),
            vision.need("num_hidden_layers"),
            vision.need("patch_size"),
        )
        layer = "vision_tower.transformer.layers.*"
        made = _patches(
            "vision_tower.patch_conv",
            hidden,
            vision.count("num_channels", default=3),
            patch,
            patch,
            bias=False,
        )
        made += norm("vision_tower.ln_pre", hidden, 1)
        made += _four(
            f"{layer}.attention", ("q_proj", "k_proj", "v_proj", "o_proj"), hidden, layers, bias=False
        )
        made += mlp(f"{layer}.feed_forward", hidden, vision.need("intermediate_size"), layers)
        made += norm(f"{layer}.attention_norm", hidden, layers) + norm(f"{layer}.ffn_norm", hidden, layers)
        merged = hidden * config.count("spatial_merge_size", default=2) ** 2
        root, bias = "multi_modal_projector", config.flag("multimodal_projector_bias")
        made += norm(f"{root}.norm", hidden, 1) + _linear(
            f"{root}.patch_merger.merging_layer", hidden, merged, 1, bias=False
        )
        made += _linear(f"{root}.linear_1", text, hidden, 1, bias=bias)
        return made + _linear(f"{root}.linear_2", text, text, 1, bias=bias)

    return _encoder(config, build)


def qwen3(config: Config) -> Weights | None:
    """The encoder of Qwen3-VL and Qwen3.5, with a merger for each layer that DeepStack takes."""

    def build(vision: Config) -> list[Weight]:
        hidden, depth = vision.need("hidden_size"), vision.need("depth")
        made = _qwen_patches(vision, hidden, bias=True)
        places = vision.need("num_position_embeddings")
        made += [Weight(name="model.visual.pos_embed.weight", shape=(places, hidden), role="vision")]
        made += _qwen_blocks("model.visual", hidden, depth, bias=True)
        made += mlp(
            "model.visual.blocks.*.mlp", hidden, vision.need("intermediate_size"), depth, kind="plain",
            names=("linear_fc1", "linear_fc2"), bias=True,
        )  # fmt: skip
        merged, out = hidden * vision.need("spatial_merge_size") ** 2, vision.need("out_hidden_size")
        made += norm("model.visual.merger.norm", hidden, 1, bias=True)
        made += _merger("model.visual.merger", merged, out, 1)
        if taken := len(vision.numbers("deepstack_visual_indexes")):
            made += norm("model.visual.deepstack_merger_list.*.norm", merged, taken, bias=True)
            made += _merger("model.visual.deepstack_merger_list.*", merged, out, taken)
        return made

    return _encoder(config, build)


def _merger(prefix: str, merged: int, out: int, copies: int) -> list[Weight]:
    return _linear(f"{prefix}.linear_fc1", merged, merged, copies) + _linear(
        f"{prefix}.linear_fc2", out, merged, copies
    )


def qwen2_5(config: Config) -> Weights | None:
    """The encoder of Qwen2.5-VL: RMS norms and a gated feed-forward."""

    def build(vision: Config) -> list[Weight]:
        hidden, depth = vision.need("hidden_size"), vision.need("depth")
        made = _qwen_patches(vision, hidden, bias=False) + _qwen_blocks("visual", hidden, depth, bias=False)
        made += mlp("visual.blocks.*.mlp", hidden, vision.need("intermediate_size"), depth, bias=True)
        return made + _qwen2_merger(vision, hidden, vision.need("out_hidden_size"), bias=False)

    return _encoder(config, build)


def qwen2(config: Config) -> Weights | None:
    """The encoder of Qwen2-VL, whose `hidden_size` is that of the text model."""

    def build(vision: Config) -> list[Weight]:
        hidden, depth = vision.need("embed_dim"), vision.need("depth")
        made = _qwen_patches(vision, hidden, bias=False) + _qwen_blocks("visual", hidden, depth, bias=True)
        width = hidden * vision.count("mlp_ratio", default=4)
        made += mlp(
            "visual.blocks.*.mlp", hidden, width, depth, kind="plain", names=("fc1", "fc2"), bias=True
        )
        return made + _qwen2_merger(vision, hidden, vision.need("hidden_size"), bias=True)

    return _encoder(config, build)


def _qwen_patches(vision: Config, hidden: int, *, bias: bool) -> list[Weight]:
    patch, frames = vision.need("patch_size"), vision.count("temporal_patch_size", default=2)
    channels = vision.count("in_channels", "in_chans", default=3)
    root = "model.visual" if bias else "visual"
    return _patches(f"{root}.patch_embed.proj", hidden, channels, frames, patch, patch, bias=bias)


def _qwen_blocks(root: str, hidden: int, depth: int, *, bias: bool) -> list[Weight]:
    """Attention and norms; `bias` is that of the norms."""
    block = f"{root}.blocks.*"
    made = _linear(f"{block}.attn.qkv", 3 * hidden, hidden, depth) + _linear(
        f"{block}.attn.proj", hidden, hidden, depth
    )
    return (
        made
        + norm(f"{block}.norm1", hidden, depth, bias=bias)
        + norm(f"{block}.norm2", hidden, depth, bias=bias)
    )


def _qwen2_merger(vision: Config, hidden: int, out: int, *, bias: bool) -> list[Weight]:
    merged = hidden * vision.count("spatial_merge_size", default=2) ** 2
    made = norm("visual.merger.ln_q", hidden, 1, bias=bias)
    return (
        made
        + _linear("visual.merger.mlp.0", merged, merged, 1)
        + _linear("visual.merger.mlp.2", out, merged, 1)
    )


def llama4(config: Config, text: int) -> Weights | None:
    """Llama 4's encoder, its pixel-shuffle adapter and the projector."""

    def build(vision: Config) -> list[Weight]:
        hidden, layers, patch = (
            vision.need("hidden_size"),
            vision.need("num_hidden_layers"),
            vision.need("patch_size"),
        )
        width, places = vision.need("intermediate_size"), (vision.need("image_size") // patch) ** 2 + 1
        root = "vision_model"
        layer = f"{root}.model.layers.*"
        made = vector(f"{root}.class_embedding", hidden, 1)
        made += [Weight(name=f"{root}.positional_embedding_vlm", shape=(places, hidden), role="vision")]
        pixels = vision.count("num_channels", default=3) * patch * patch
        made += _linear(f"{root}.patch_embedding.linear", hidden, pixels, 1, bias=False)
        made += _four(
            f"{layer}.self_attn", ("q_proj", "k_proj", "v_proj", "o_proj"), hidden, layers, bias=True
        )
        made += mlp(f"{layer}.mlp", hidden, width, layers, kind="plain", names=("fc1", "fc2"), bias=True)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made += norm(f"{layer}.{name}", hidden, layers, bias=True)
        made += norm(f"{root}.layernorm_pre", hidden, 1, bias=True) + norm(
            f"{root}.layernorm_post", hidden, 1, bias=True
        )
        # The shuffle keeps `pixel_shuffle_ratio` (0.5) of each side, so four places become one.
        projected = vision.need("projector_input_dim")
        made += _linear(f"{root}.vision_adapter.mlp.fc1", projected, width, 1, bias=False)
        made += _linear(
            f"{root}.vision_adapter.mlp.fc2", vision.need("projector_output_dim"), projected, 1, bias=False
        )
        return made + _linear(
            "multi_modal_projector.linear_1", text, vision.need("vision_output_dim"), 1, bias=False
        )

    return _encoder(config, build)


def gemma4(config: Config, text: int) -> Weights | None:
    """Gemma 4's encoder with its table of places for both axes. Audio encoders are not counted."""

    def build(vision: Config) -> list[Weight]:
        hidden, layers, heads = (
            vision.need("hidden_size"),
            vision.need("num_hidden_layers"),
            vision.need("num_attention_heads"),
        )
        dim, places = vision.need("head_dim"), vision.count("position_embedding_size", default=10240)
        layer = "model.vision_tower.encoder.layers.*"
        made = [
            Weight(
                name="model.vision_tower.patch_embedder.position_embedding_table",
                shape=(2, places, hidden),
                role="vision",
            )
        ]
        made += _linear(
            "model.vision_tower.patch_embedder.input_proj",
            hidden,
            3 * vision.need("patch_size") ** 2,
            1,
            bias=False,
        )
        for name in ("q_proj", "k_proj", "v_proj"):
            made += _linear(f"{layer}.self_attn.{name}.linear", heads * dim, hidden, layers, bias=False)
        made += _linear(f"{layer}.self_attn.o_proj.linear", hidden, heads * dim, layers, bias=False)
        made += norm(f"{layer}.self_attn.q_norm", dim, layers) + norm(
            f"{layer}.self_attn.k_norm", dim, layers
        )
        names = ("gate_proj.linear", "up_proj.linear", "down_proj.linear")
        made += mlp(f"{layer}.mlp", hidden, vision.need("intermediate_size"), layers, names=names)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            made += norm(f"{layer}.{name}_layernorm", hidden, layers)
        return made + _linear("model.embed_vision.embedding_projection", text, hidden, 1, bias=False)

    if config.inner("audio_config"):
        config.notes.append("the audio encoder is not counted")
        return None
    return _encoder(config, build)

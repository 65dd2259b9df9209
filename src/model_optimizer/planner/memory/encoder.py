"""The encoder of images while it is profiled: its widest layer for the largest image, and its outputs.

Sizes are those of `vision_config` in config.json. Models that take images of any size are profiled with the
largest that their processor lets through, which stands in a file that is not read here: it is assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from model_optimizer.core import ModelSpec
from model_optimizer.core.units import show_bytes

from .activation import Part

# Tokens of the largest image of models without a fixed size (Qwen2.5-VL: 12,845,056 pixels in 28 x 28).
LARGEST_IMAGE_TOKENS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`held_bytes` stay while the language model is profiled."""

    part: Part
    held_bytes: int


def profile(spec: ModelSpec, *, max_num_batched_tokens: int, element_bytes: int) -> Run | None:
    """None for models without images, or whose config.json does not describe the encoder."""
    vision = _vision(spec)
    if vision is None:
        return None
    width, inner = _number(vision, "hidden_size", "embed_dim", "width"), _inner(vision)
    if not width:
        return None
    tokens, patches = _image(spec, vision)
    items = max(1, max_num_batched_tokens // tokens)
    rows = patches * items
    total = rows * (4 * width + 2 * inner) * element_bytes
    cache = max(max_num_batched_tokens, tokens) * spec.hidden_size * element_bytes
    return Run(
        part=Part(
            name="vision encoder",
            bytes=total + cache,
            because=(
                f"{items} of the largest images, {rows:,} patches x (4 x {width:,} + 2 x {inner:,}) x "
                f"{element_bytes} B = {show_bytes(total)}, outputs {show_bytes(cache)}"
            ),
        ),
        held_bytes=cache,
    )


def _vision(spec: ModelSpec) -> Mapping[str, object] | None:
    found = (spec.config or {}).get("vision_config")
    return cast("Mapping[str, object]", found) if isinstance(found, dict) and found else None


def _number(keys: Mapping[str, object], *names: str) -> int:
    for name in names:
        value = keys.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 24:
            return value
    return 0


def _inner(vision: Mapping[str, object]) -> int:
    found = _number(vision, "intermediate_size", "mlp_dim")
    if found:
        return found
    ratio = vision.get("mlp_ratio")
    width = _number(vision, "hidden_size", "embed_dim", "width")
    return round(width * ratio) if isinstance(ratio, (int, float)) and 0 < ratio < 64 else 4 * width


def reads_images(spec: ModelSpec) -> bool:
    """Whether prompts of this language model may hold images."""
    return spec.task == "generate" and _vision(spec) is not None


def image_tokens(spec: ModelSpec, width: int, height: int) -> int | None:
    """Places that an image of so many pixels takes in a prompt; None when config.json does not say.

    Encoders of a fixed size take the same number for every image, the others one for each square of patches
    that are merged.
    """
    vision = _vision(spec)
    if vision is None:
        return None
    patch, merge = _number(vision, "patch_size"), _number(vision, "spatial_merge_size")
    if merge and patch:
        side = patch * merge
        return -(-width // side) * -(-height // side)
    if _number(vision, "image_size") and patch:
        return _image(spec, vision)[0]
    return None


def operations(spec: ModelSpec, width: int, height: int) -> float | None:
    """What the encoder computes for an image of so many pixels; None when config.json does not say its sizes.

    Products with every patch, those of mergers and projectors with every place in the prompt, and each patch
    with each other one; in windows, where the encoder has some, that is only done by the layers named.
    """
    vision, tokens = _vision(spec), image_tokens(spec, width, height)
    weights = [
        w for w in spec.weights if w.role == "vision" and len(w.shape) >= 2 and "pos_emb" not in w.name
    ]
    if vision is None or tokens is None or not weights:
        return None
    merge = _number(vision, "spatial_merge_size")
    patches = tokens * merge**2 if merge else _image(spec, vision)[1]
    products = sum(w.parameters * (tokens if _after(w.name) else patches) for w in weights)
    whole = vision.get("fullatt_block_indexes")
    layers = len(cast("list[int]", whole)) if isinstance(whole, list) and whole else _depth(vision)
    size = _number(vision, "hidden_size", "embed_dim", "width")
    return 2.0 * products + 4.0 * patches**2 * size * layers


def _after(name: str) -> bool:
    """Whether a weight meets places of the prompt, which several patches were merged into."""
    return any(word in name for word in ("merger", "projector", "adapter"))


def _depth(vision: Mapping[str, object]) -> int:
    return _number(vision, "depth", "num_hidden_layers", "layers")


def _image(spec: ModelSpec, vision: Mapping[str, object]) -> tuple[int, int]:
    """(tokens of the language model, patches of the encoder) of the largest image."""
    side, patch = _number(vision, "image_size"), _number(vision, "patch_size")
    told = _number(spec.config or {}, "mm_tokens_per_image", "image_seq_length")
    merge = _number(vision, "spatial_merge_size") or 1
    if side and patch and _number(vision, "spatial_merge_size") == 0:
        patches = (side // patch) ** 2
        return told or patches, patches
    return LARGEST_IMAGE_TOKENS, LARGEST_IMAGE_TOKENS * merge**2

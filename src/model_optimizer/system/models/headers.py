"""Counting parameters in safetensors headers: every weight once, packed ones by what they stand for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from model_optimizer.core import Quantization
from model_optimizer.system.safetensors_header import Tensor

# Scales, zero points and bookkeeping of quantized layers: no parameters.
_BESIDE = re.compile(
    r"(?:^|\.|_)(?:scales?|weight_scale(?:_2|_inv)?|input_scale|output_scale|[kvq]_scale|act_scales?|qzeros|zeros"
    r"|g_idx|weight_(?:zero_point|g_idx|shape|global_scale)|input_(?:global_scale|zero_point)|[kvq]_zero_point"
    r"|weight_format|SCB|absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.\w+)$"
)
# Buffers, which are stored and never trained.
_BUFFER = re.compile(
    r"(?:^|\.)(?:inv_freq|position_ids|num_batches_tracked|running_mean|running_var|e_score_correction_bias"
    r"|masked_bias|layer_scalar|std_bias|std_scale)$"
)
_FLOAT = {"F64", "F32", "F16", "BF16"}
_EIGHT = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8"}
_ENCODER = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|vision_embed|multi_modal_projector|mm_projector"
    r"|embed_vision|embed_audio|audio_tower|audio_model|patch_merger)\."
)
_FURTHER = re.compile(r"(?:^|\.)mtp(?:\.|_)")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_PACKED = re.compile(r"(?:^|\.|_)(?:qweight|weight_packed|blocks)$")
_METHODS = {
    "awq",
    "gptq",
    "gptq_marlin",
    "auto-round",
    "intel/auto-round",
    "compressed-tensors",
    "fp8",
    "fbgemm_fp8",
    "modelopt",
    "mxfp4",
    "bitsandbytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """`further` are layers that predict further tokens; they are not in `parameters`, encoders are."""

    parameters: int
    encoder: int
    further: int
    dtype: str | None


def count(
    tensors: Mapping[str, Tensor], *, layers: int, tied: bool, quantization: Quantization | None
) -> Counted | None:
    """None when the weights are packed by a method whose packing is not known here."""
    if quantization is not None and quantization.method not in _METHODS:
        return None
    parameters = encoder = further = 0
    formats: dict[str, int] = {}
    for name, tensor in _once(tensors, tied=tied).items():
        logical = _logical(name, tensor, quantization)
        if logical is None:
            return None
        if logical and tensor.dtype in _FLOAT | _EIGHT:
            formats[tensor.dtype] = formats.get(tensor.dtype, 0) + logical
        if _is_further(name, layers):
            further += logical
            continue
        parameters += logical
        encoder += logical if _ENCODER.search(name) else 0
    usual = max(formats, key=lambda name: formats[name], default=None)
    return Counted(parameters=parameters, encoder=encoder, further=further, dtype=usual)


def _once(tensors: Mapping[str, Tensor], *, tied: bool) -> Mapping[str, Tensor]:
    """Leave out a head that repeats the embedding it is tied to."""
    if not tied:
        return tensors
    inputs = {
        t.shape
        for name, t in tensors.items()
        if name.endswith(("embed_tokens.weight", "wte.weight", "embeddings.weight"))
    }
    return {
        name: t
        for name, t in tensors.items()
        if not (name.endswith(("lm_head.weight", "decoder.weight")) and t.shape in inputs)
    }


def _logical(name: str, tensor: Tensor, quantization: Quantization | None) -> int | None:
    """Parameters that a tensor stands for; 0 for what is none, None when its packing is not known."""
    if _BUFFER.search(name) or (quantization is not None and _BESIDE.search(name)):
        return 0
    if tensor.dtype in _FLOAT:
        return tensor.elements
    if tensor.dtype in _EIGHT:
        return tensor.elements if quantization is not None or tensor.dtype != "I8" else 0
    if tensor.dtype == "F4":
        return tensor.elements
    if quantization is None:
        return 0
    if tensor.dtype == "I32" and _PACKED.search(name):
        bits = quantization.weight_bits
        return round(tensor.elements * 32 / bits) if bits else None
    if tensor.dtype == "U8" and (_PACKED.search(name) or quantization.weight_bits == 4):
        return tensor.elements * 2
    return 0


def _is_further(name: str, layers: int) -> bool:
    """Layers beyond the last one of the config, and what is named after multi-token prediction."""
    found = _LAYER.search(name)
    if found and not _ENCODER.search(name) and int(found[1]) >= layers:
        return True
    return bool(_FURTHER.search(name))

"""Blocks of FP4 (E2M1) with FP8 scales under one scale of the whole, as NVFP4 has them, in plain torch."""

from typing import Any

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LARGEST, LARGEST_FP8 = 6.0, 448.0
BLOCK = 16


def rounded(values: Any, whole: Any, block: int = BLOCK) -> Any:
    """Float32 values as they come back from FP4; `whole` is the scale of all block scales."""
    import torch

    blocks = values.float().reshape(-1, block)
    scale = (blocks.abs().amax(1, keepdim=True) / LARGEST / whole).clamp(max=LARGEST_FP8)
    scale = scale.to(torch.float8_e4m3fn).float() * whole
    sized = torch.where(scale > 0, blocks / scale, 0.0)
    return (_nearest(sized) * scale).reshape(values.shape)


def _nearest(values: Any) -> Any:
    """To the nearest number of E2M1; of two that are as near, to the one whose last bit is 0."""
    import torch

    steps = torch.tensor(MAGNITUDES, device=values.device)
    edges = (steps[1:] + steps[:-1]) / 2
    edges[1::2] = torch.nextafter(edges[1::2], torch.zeros_like(edges[1::2]))
    return steps[torch.bucketize(values.abs().clamp(max=LARGEST), edges)] * values.sign()


def unpacked(packed: Any, scale: Any, whole: Any) -> Any:
    """A matrix in float32: two numbers a byte, the lower half first, sign in the highest bit of each."""
    import torch

    halves = torch.stack((packed & 15, packed >> 4), dim=-1).reshape(packed.shape[0], -1).long()
    numbers = torch.tensor((*MAGNITUDES, *(-size for size in MAGNITUDES)))[halves]
    sized = numbers.reshape(*scale.shape, BLOCK) * scale.float()[..., None] * whole.float()
    return sized.reshape(numbers.shape)

"""GPTQ's statistics of a layer's inputs: no token drowns the others, and too few tokens are said.

Many language models answer the first token of a text, whatever it is, with inputs of one or two layers that
are hundreds of times as long as any other token's. GPTQ sums squares, so such a token alone decides what is
minimized there, and the layer's answers to all other tokens become worse than by rounding.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

FEWEST = 8
"""Tokens that a median is taken of; fewer stay as they are."""


@contextmanager
def limited_tokens(longest: float) -> Generator[None]:
    """While the block runs, llm-compressor's statistics count a token whose input is longer than `longest`
    times the median of its sample as if it were that long."""
    from llmcompressor.modifiers.gptq import base

    accumulate = base.accumulate_hessian

    def limited(inputs: Any, *arguments: Any) -> Any:
        return accumulate(shortened(inputs, longest), *arguments)

    base.accumulate_hessian = limited
    try:
        yield
    finally:
        base.accumulate_hessian = accumulate


def shortened(inputs: Any, longest: float) -> Any:
    """Inputs of tokens (..., tokens, columns) in float32, none longer than `longest` times the median."""
    import torch

    if inputs.shape[-2] < FEWEST:
        return inputs
    lengths = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True, dtype=torch.float32)
    most = longest * lengths.median(dim=-2, keepdim=True).values
    return inputs * torch.where((lengths > most) & (most > 0), most / lengths, 1.0)


def few_tokens(columns: Sequence[int], tokens: int, least: float) -> list[str]:
    """A note where the widest matrix has fewer than `least` tokens for each of its columns."""
    widest = max(columns)
    if tokens >= least * widest:
        return []
    return [
        f"few calibration tokens: {tokens:,} for {widest:,} columns, {tokens / widest:.1f} each; below "
        f"{least:g} GPTQ fits these texts and loses on others"
    ]

"""8-bit floating point (E4M3): a weight scale for each 128 x 128 block, activations in groups of 128."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="fp8_block",
    title="FP8 in blocks of 128 x 128",
    weight_bits=8,
    weight_number="fp8",
    activation_bits=8,
    activation_number="fp8",
    group_size=128,
    min_compute_capability=(7, 5),
    native_compute_capability=(8, 9),
    gate=Gate(
        recovery=0.99,
        top1=0.95,
        cosine=0.99,
        rank=0.97,
        source=(
            "recovery: FP8 is found to be without loss (Kurtic et al., arXiv 2411.02355), the limit "
            "0.99 is this product's; top1, cosine and rank are assumed, top1 to agree with recovery: "
            "a trained model of 5 million parameters kept 0.975 of its perplexity at a top-1 of 0.85 "
            "(4 bits) and 0.999 at 0.99 (8 bits)"
        ),
    ),
    source=(
        "compute capabilities assumed to be those of fp8 (vLLM 0.33.0 "
        "docs/features/quantization/README.md); blocks of 128: llm-compressor 0.14 preset "
        "FP8_BLOCK"
    ),
)

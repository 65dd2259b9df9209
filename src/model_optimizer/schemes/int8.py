"""8-bit integer weights (one scale a channel) and 8-bit integer activations, scaled while running."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="int8",
    title="W8A8: 8-bit integers, activations scaled while running",
    weight_bits=8,
    weight_number="int",
    activation_bits=8,
    activation_number="int",
    min_compute_capability=(7, 5),
    native_compute_capability=(7, 5),
    max_compute_capability=(9, 9),
    gate=Gate(
        recovery=0.98,
        top1=0.93,
        cosine=0.98,
        rank=0.95,
        source=(
            "recovery: INT8 loses 1 to 3 % when well tuned (Kurtic et al., arXiv 2411.02355), the "
            "limit 0.98 is this product's; top1, cosine and rank are assumed, top1 to agree with "
            "recovery: a trained model of 5 million parameters kept 0.975 of its perplexity at a "
            "top-1 of 0.85 (4 bits) and 0.999 at 0.99 (8 bits)"
        ),
    ),
    source=(
        "7.5 to 9.x: vLLM 0.33.0 docs int8_w8a8.md (not supported from 10.0 on) and "
        "compressed_tensors_w8a8_int8.py"
    ),
)

"""4-bit integer weights in groups of 128, scaled by what activations say (AWQ)."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="awq_int4",
    title="W4A16 by AWQ",
    weight_bits=4,
    weight_number="int",
    activation_bits=16,
    activation_number="float",
    group_size=128,
    min_compute_capability=(7, 5),
    needs_calibration=True,
    gate=Gate(
        recovery=0.94,
        top1=0.8,
        cosine=0.94,
        rank=0.85,
        source=(
            "recovery: the limit 0.94 for 4-bit weights is this product's; top1, cosine and rank are "
            "assumed, top1 to agree with recovery: a trained model of 5 million parameters kept 0.975 "
            "of its perplexity at a top-1 of 0.85 (4 bits) and 0.999 at 0.99 (8 bits)"
        ),
    ),
    source=(
        "7.5: vLLM 0.33.0 docs/features/quantization/README.md and auto_awq.py "
        "get_min_capability; groups of 128: llm-compressor 0.14 preset W4A16"
    ),
)

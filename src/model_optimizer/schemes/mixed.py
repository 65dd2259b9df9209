"""A format for each layer, FP8 or NVFP4 or none, chosen so that the whole keeps to a number of bits."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="mixed",
    title="Mixed: NVFP4 where a layer bears it, FP8 or 16 bits where it does not",
    weight_bits=6,
    weight_number="fp4",
    activation_bits=8,
    activation_number="fp8",
    group_size=16,
    min_compute_capability=(7, 5),
    native_compute_capability=(10, 0),
    needs_calibration=True,
    gate=Gate(
        recovery=0.97,
        top1=0.88,
        cosine=0.97,
        rank=0.92,
        source=(
            "assumed: half-way between FP8 and 4 bits, whose limits are 0.99 and 0.94; top1, cosine and rank "
            "likewise"
        ),
    ),
    source=(
        "6 bits a weight are this product's default for the budget (`--bits`); loads and computes where both "
        "formats do, so as nvfp4: vLLM 0.33.0 docs modelopt.md and modelopt.py (MIXED_PRECISION)"
    ),
)

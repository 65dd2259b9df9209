"""4-bit floating point (E2M1) in groups of 16 with FP8 scales, weights and activations."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="nvfp4",
    title="NVFP4: 4-bit floating point with FP8 scales",
    weight_bits=4,
    weight_number="fp4",
    activation_bits=4,
    activation_number="fp4",
    group_size=16,
    min_compute_capability=(7, 5),
    native_compute_capability=(10, 0),
    needs_calibration=True,
    gate=Gate(
        recovery=0.94,
        top1=0.8,
        cosine=0.94,
        rank=0.85,
        source=(
            "assumed: as for 4-bit integers; top1, cosine and rank are assumed, top1 to agree with "
            "recovery: a trained model of 5 million parameters kept 0.975 of its perplexity at a "
            "top-1 of 0.85 (4 bits) and 0.999 at 0.99 (8 bits)"
        ),
    ),
    source=(
        "loads from 7.5 (weight-only Marlin), computed from 10.0 on, partly on 12.0: vLLM 0.33.0 "
        "docs modelopt.md and modelopt.py, Transformer Engine support matrix"
    ),
)

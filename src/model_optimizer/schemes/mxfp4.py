"""4-bit floating point (E2M1) weights in groups of 32 with power-of-two scales."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="mxfp4",
    title="MXFP4: 4-bit floating point with power-of-two scales",
    weight_bits=4,
    weight_number="fp4",
    activation_bits=16,
    activation_number="float",
    group_size=32,
    min_compute_capability=(8, 0),
    native_compute_capability=(10, 0),
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
        "8.0: vLLM 0.33.0 mxfp4.py; native from 10.0 is assumed from the MXFP8 row of the "
        "Transformer Engine support matrix; groups of 32: OCP Microscaling Formats 1.0"
    ),
)

"""8-bit floating point (E4M3): weight and activation scales fixed beforehand, one a tensor."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="fp8_static",
    title="FP8: activation scales fixed by calibration",
    weight_bits=8,
    weight_number="fp8",
    activation_bits=8,
    activation_number="fp8",
    min_compute_capability=(7, 5),
    native_compute_capability=(8, 9),
    needs_calibration=True,
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
        "as fp8: vLLM 0.33.0 docs/features/quantization/README.md, "
        "compressed_tensors_w8a8_fp8.py; a tensor, not a channel, has one scale"
    ),
)

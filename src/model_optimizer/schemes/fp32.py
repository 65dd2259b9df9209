"""32-bit floating point: what a conversion without quantization is held to."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="fp32",
    title="32-bit floating point",
    weight_bits=32,
    weight_number="float",
    activation_bits=32,
    activation_number="float",
    gate=Gate(
        recovery=0.999,
        top1=0.999,
        cosine=0.9999,
        rank=0.999,
        source=(
            "assumed: exports of the same arithmetic differ by rounding alone (seen: 1e-7 to 5e-6 on "
            "logits, top-1 equal)"
        ),
    ),
    source="IEEE 754 binary32; runs everywhere",
)

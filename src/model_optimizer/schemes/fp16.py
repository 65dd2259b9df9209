"""16-bit floating point with a 5-bit exponent."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="fp16",
    title="16-bit floating point",
    weight_bits=16,
    weight_number="float",
    activation_bits=16,
    activation_number="float",
    gate=Gate(
        recovery=0.998,
        top1=0.99,
        cosine=0.9995,
        rank=0.99,
        source=(
            "assumed: seen on exports of random models 1e-3 to 8e-3 on logits, top-1 equal on at "
            "least 98.96 % of positions with near-ties counted in"
        ),
    ),
    source=("IEEE 754 binary16; every GPU that the engines support computes in it; overflows above 65504"),
)

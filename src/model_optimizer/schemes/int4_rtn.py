"""4-bit integer weights in blocks of 32, rounded to nearest; activations stay in floating point."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="int4_rtn",
    title="W4A16: 4-bit integer weights, rounded to nearest",
    weight_bits=4,
    weight_number="int",
    activation_bits=16,
    activation_number="float",
    group_size=32,
    min_compute_capability=(7, 5),
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
        "7.5 in vLLM 0.33.0 compressed_tensors_wNa16.py (its docs int4.md say 8.0); blocks of 32: "
        "default of ONNX Runtime 1.31 MatMulNBits tools and of the ONNX Runtime GenAI 0.18 "
        "builder"
    ),
)

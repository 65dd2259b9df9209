"""8-bit integer weights in blocks of 32, activations stay in floating point."""

from model_optimizer.core import Gate, Scheme

SCHEME = Scheme(
    name="int8_weight",
    title="W8A16: 8-bit integer weights",
    weight_bits=8,
    weight_number="int",
    activation_bits=16,
    activation_number="float",
    group_size=32,
    min_compute_capability=(7, 5),
    gate=Gate(
        recovery=0.99,
        top1=0.96,
        cosine=0.99,
        rank=0.97,
        source=(
            "assumed: between FP8 and W8A8, whose limits are 0.99 and 0.98; top1, cosine and rank are "
            "assumed, top1 to agree with recovery: a trained model of 5 million parameters kept 0.975 "
            "of its perplexity at a top-1 of 0.85 (4 bits) and 0.999 at 0.99 (8 bits)"
        ),
    ),
    source=(
        "7.5: Marlin W8A16 in vLLM since 0.14 (gptq_marlin.py); blocks of 32: ONNX Runtime 1.31 "
        "MatMulNBits as the ONNX Runtime GenAI 0.18 builder writes it"
    ),
)

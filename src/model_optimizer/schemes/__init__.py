"""Number formats, one constant a file, and the names that others give them."""

from model_optimizer.core import plugins

ALIASES = {
    "awq": "awq_int4", "gptq": "gptq_int4", "w4a16": "int4_rtn", "w8a8": "int8", "w8a16": "int8_weight",
    "fp8_dynamic": "fp8", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
    "fp4": "nvfp4", "int4": "int4_rtn",
}  # fmt: skip
"""Names that other tools give to a scheme, without capitals and with underscores."""


def canonical(name: str) -> str:
    """The name of a scheme by any of its names; an unknown one comes back in our spelling."""
    word = plugins.canonical(name)
    return ALIASES.get(word, word)

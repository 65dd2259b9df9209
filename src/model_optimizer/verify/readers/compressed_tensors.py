"""A checkpoint of llm-compressor, whose numbers PyTorch expands and rounds as its description says.

That shows what its weights and scales are worth. How an engine computes them, only a running server shows.
"""

ENVIRONMENT = "llm_compressor"
JOB = "quality_torch"

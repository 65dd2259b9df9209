"""A checkpoint of NVIDIA ModelOpt in FP8, NVFP4 or both, expanded in PyTorch; activations rounded as it says.

That shows what its weights and scales are worth. How an engine computes them, only a running server shows.
"""

ENVIRONMENT = "onnx"
JOB = "quality_torch"

"""A checkpoint folder as the model hub has it, run in PyTorch: the reference in float32."""

ENVIRONMENT = "onnx"
JOB = "outputs_torch"

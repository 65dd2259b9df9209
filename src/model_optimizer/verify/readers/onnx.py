"""A folder with model.onnx, or the file itself."""

ENVIRONMENT = "onnx"
JOB = "outputs_onnx"

"""A folder that onnxruntime-genai's builder made: a decoder with its cache as inputs and outputs."""

ENVIRONMENT = "onnx"
JOB = "outputs_onnx"

"""A running server on this machine, asked over HTTP for vectors or for the log-probabilities of a prompt."""

ENVIRONMENT = "onnx"
JOB = "outputs_endpoint"

"""One file per format: which worker runs an artefact of it, and in which environment.

A file offers ENVIRONMENT and JOB (a file in workers/ that answers the request of outputs_onnx.py).
"""

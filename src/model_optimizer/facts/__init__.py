"""What the product knows before it looks at a machine: data files, each row with its source.

Nothing is read when this package is imported. Each subject is a module: `gpus`, `models`, `drivers`,
`vllm`, `tensorrt`, `tensorrt_rtx`, `tensorrt_llm`, `formats`, `architectures`. To add a GPU, a model,
a release or a format, add one file to its folder; the file is the registration.
"""

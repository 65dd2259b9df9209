"""One file an architecture family: which config keys it reads, and what weights and cache follow from them.

A family is a module with `MODEL_TYPES`, the values of `model_type` that it knows, and
`shape(config) -> Shape`. Dropping a file into this folder is the whole registration. A new one is checked
against the modules that transformers builds: add its config to tests/data/models/configs.json and run
tools/count_parameters.py.
"""

"""Code that is loaded into vLLM. It imports nothing of ours: vLLM finds it through PYTHONPATH alone."""

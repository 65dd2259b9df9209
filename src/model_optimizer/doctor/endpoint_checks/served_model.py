"""The model that is asked for is served under that name.

A server knows a model by the name that --served-model-name gives it, else by the path or hub id that it
was started with, and answers 404 to any other.
"""

from difflib import get_close_matches

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "answers"
AFTER = ("path", "key")
SOURCE = ("vLLM docs, --served-model-name", "OpenAI API reference, models")


def check(endpoint: Endpoint) -> Finding:
    served = endpoint.models
    if served is None:
        return Finding(status="unknown", message="the list of models could not be read")
    if not served:
        return Finding(
            status="fail",
            message="the server has no model",
            evidence="GET /v1/models: an empty list",
            hint="Ollama: ollama pull MODEL; others: look at the server's log",
        )
    shown = ", ".join(served[:5]) + (f" and {len(served) - 5} more" if len(served) > 5 else "")
    if endpoint.wanted and endpoint.wanted not in served:
        lower = {name.lower(): name for name in served}
        close = get_close_matches(endpoint.wanted.lower(), lower, n=1, cutoff=0.3)
        best = lower[close[0]] if close else next(iter(served))
        return Finding(
            status="fail",
            message=f"no model is served as `{endpoint.wanted}`; the nearest is `{best}`",
            evidence=f"served: {shown}",
            hint=f"ask for `{best}`\nor start the server with --served-model-name {endpoint.wanted}",
        )
    return Finding(status="ok", message=f"serves {shown}", evidence="GET /v1/models")

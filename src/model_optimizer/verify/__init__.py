"""Is it right? Layers of verification; each is one function from artefacts to a Verdict."""

from .endpoint import Endpoint
from .model import run_reference, verify_model

LAYERS = ("operators", "format", "model", "quality", "service")
"""The layers that exist today; `core.verdict.Layer` names all that are planned."""

__all__ = ["LAYERS", "Endpoint", "run_reference", "verify_model"]

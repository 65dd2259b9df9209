"""Is it right? Layers of verification; each is one function from artefacts to a Verdict."""

from .model import verify_model

LAYERS = ("model",)
"""The layers that exist today; `core.verdict.Layer` names all that are planned."""

__all__ = ["LAYERS", "verify_model"]

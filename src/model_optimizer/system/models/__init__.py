"""Reading models: from a hub id, a folder or a bare config.json to a ModelSpec. Weights are never loaded."""

from .checkpoint import checkpoint_artifact, tokenizer_files
from .sources import read

__all__ = ["checkpoint_artifact", "read", "tokenizer_files"]

"""Reading models: from a hub id, a folder or a bare config.json to a ModelSpec. Weights are never loaded."""

from .checkpoint import checkpoint_artifact, content_digest, require_weights, tokenizer_files
from .sources import read

__all__ = ["checkpoint_artifact", "content_digest", "read", "require_weights", "tokenizer_files"]

"""Bytes: what one engine process holds on a GPU, term by term, as the engine itself accounts for it."""

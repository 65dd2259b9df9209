"""From a model and four hard facts to a running, verified and measured deployment."""

__version__ = "0.1.0"

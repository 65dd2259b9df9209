"""Pipelines that join stages, one a file. They are handed their stages, so they run without engines too."""

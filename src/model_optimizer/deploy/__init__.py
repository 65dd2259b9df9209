"""Files that run an artefact somewhere else: one target a file."""

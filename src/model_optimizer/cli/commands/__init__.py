"""One file per command. Each offers COMMAND (a click command) and GROUP (where --help lists it)."""

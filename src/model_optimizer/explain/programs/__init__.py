"""One program a file: `matches(words)` says whether a command line is one of it, `explain` answers."""

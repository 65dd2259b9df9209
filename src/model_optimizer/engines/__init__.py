"""One file per engine: what it reads, what it needs, how a plan becomes its command line."""

"""Long-running readers of the log: `verify` scores what is finished, `sink` copies everything into the lake."""

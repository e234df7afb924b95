"""One module a command: `EXAMPLES`, `add_arguments(parser)` and `run(options) -> exit code`."""

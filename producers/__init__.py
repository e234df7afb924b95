"""History is made here: the episode loop, policies, tools, ownership and takeover, scheduling."""

"""Where commands of agents and candidates run: the Sandbox contract, its backends, snapshots, pool and reaper."""

"""From episodes to weights: batches without torch (`batch`, `rebuild`, `accounts`), the Megatron-Core learner with it."""

"""From episodes to weights: batches without torch (`batch`, `rebuild`, `accounts`), then the Megatron-Core learner."""

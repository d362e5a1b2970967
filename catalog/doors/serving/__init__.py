"""What all front doors share: who asks, keys and roles, limits, metrics, logs, and the processes that serve."""

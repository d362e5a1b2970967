"""The parts that all front doors share: clients, keys and roles, limits, metrics, logs, and the server processes."""

"""Settings of this installation: the environment and the list of tables."""

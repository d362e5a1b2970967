"""What the environment and the list of tables say of this installation."""

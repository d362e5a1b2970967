"""Changes of a table's partition scheme, which move only the affected rows."""

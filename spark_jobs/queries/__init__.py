"""SQL queries over catalog tables."""

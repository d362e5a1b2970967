"""Changing a table's partition scheme, and moving just the rows that the change concerns."""

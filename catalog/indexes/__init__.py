"""Partition indexes: their keys, the plans that read them, and their items."""

"""Partition indexes: keys, items, builds, and the plans that read them."""

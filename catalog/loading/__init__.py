"""Rows that come: loaded, appended, published, and folders repaired into partitions."""

"""The partitions of a table: added in bulk, found through an index, dropped."""

"""Partition schemes: how the rows of a table are placed by the value of one column."""

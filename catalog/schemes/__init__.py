"""Partition schemes: placement of a table's rows by the value of one column."""

"""Glue's operations on the statistics of columns."""

OPERATIONS = {}

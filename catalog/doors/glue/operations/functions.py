"""Glue's operations on functions."""

OPERATIONS = {}

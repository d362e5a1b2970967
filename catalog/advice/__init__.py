"""Advice on partition schemes for tables, from measurements of an engine."""

"""Databases and tables: defined, altered, dropped, and whose folder is whose."""

"""Verification of files and tables, and quality checks."""

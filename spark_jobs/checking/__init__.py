"""Verifications and quality checks."""

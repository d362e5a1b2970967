"""Operators, one module for each subject."""

"""Databases and tables: their definitions, their changes, their removal, and the ownership of folders."""

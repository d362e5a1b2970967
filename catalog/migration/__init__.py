"""Turning Hive tables into Iceberg tables in place, and back."""

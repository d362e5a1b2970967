"""Bringing the databases, tables and partitions of a Hive Metastore or of Glue into the catalog."""

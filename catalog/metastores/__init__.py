"""Clients of other metastores: Hive's and Glue's."""

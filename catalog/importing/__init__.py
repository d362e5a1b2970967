"""Import of databases, tables and partitions from Hive Metastores and Glue."""

"""The front doors: the protocols of Hive Metastore, Glue and Iceberg REST over one `Catalog`."""

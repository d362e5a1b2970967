"""The front door of the Hive Metastore protocol: a Thrift server over `catalog.doors.entries`."""

"""The partitions of tables: bulk addition, indexed search, changes and removal."""

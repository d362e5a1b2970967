"""The parts of a check of the catalog: files and metadata of tables, partitions, places and statistics."""

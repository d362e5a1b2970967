"""Removal of obsolete files, journaled operations and leftovers of index builds; maintenance of Iceberg tables."""

"""Iceberg tables, views and namespaces as engines create, change and drop them, by Iceberg's REST protocol."""

"""In-place migration of Hive tables to Iceberg, and reverts."""

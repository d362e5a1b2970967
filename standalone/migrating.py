"""The demo's section on Iceberg: migrate a table in place, query it with Spark SQL, revert, and migrate again."""

from __future__ import annotations

from collections.abc import Sequence

from catalog import Catalog
from catalog.files.filesystem import Folder
from standalone.guide import DemoError, Guide

_DAG = "migrate_hive_to_iceberg"
_SAMPLE = 20
"""The number of partitions to compare in the second migration."""


def run(guide: Guide, catalog: Catalog, table: str) -> None:
    """Migrate a table through Airflow, query it with Spark SQL, revert it, and migrate it again.

    Raises:
        DemoError: A data file or an index has changed.
    """
    guide.title("8. Migrate the Hive table to Iceberg in place, and revert")
    files, indexes = _files(catalog, table), catalog.get_partition_indexes(table)
    _migrate(guide, catalog, table)
    if _files(catalog, table) != files:
        raise DemoError(f"data files of {table} changed, although a migration writes only metadata")
    guide.say(f"All {len(files):,} data files are unchanged. Spark SQL through Iceberg's JDBC catalog:")
    guide.run_spark_sql(*_queries(table))
    guide.say("\nRevert to Hive, with all partitions and indexes:")
    database, _, name = table.partition(".")
    guide.run_sql(f"CALL iceberg.system.revert(schema_name => '{database}', table_name => '{name}');")
    if _files(catalog, table) != files or catalog.get_partition_indexes(table) != indexes:
        raise DemoError(f"{table} differs from the table before the migration")
    names = ", ".join(f"{index.name} ({index.state})" for index in indexes)
    count = sum(1 for _ in catalog.get_partitions(table))
    guide.say(f"{table} is a Hive table with {count:,} partitions; its indexes: {names}.")
    guide.say(f"Migrate it again, and compare only a sample of {_SAMPLE} partitions:")
    _migrate(guide, catalog, table, verified_partitions=_SAMPLE)


def _migrate(guide: Guide, catalog: Catalog, table: str, **form: object) -> None:
    guide.run_dag(_DAG, {"tables": [table], "dry_run": False, **form})
    migrated = catalog.get_table(table)
    if not migrated.is_iceberg:
        raise DemoError(f"{table} is not an Iceberg table, although its migration succeeded")
    guide.say(f"{table} is an Iceberg table: {migrated.metadata_location}")


def _queries(table: str) -> Sequence[str]:
    name = f"calve.{table}"
    return (
        f"SELECT carrier, count(*) AS flights, round(avg(dep_delay), 1) AS delay FROM {name} WHERE month = 12\n"
        "  GROUP BY carrier ORDER BY flights DESC LIMIT 3",
        "SELECT operation, summary['total-data-files'] AS files, summary['total-records'] AS records\n"
        f"  FROM {name}.snapshots",
        "SELECT partition.month, count(*) AS files, sum(record_count) AS flights, sum(file_size_in_bytes) AS bytes\n"
        f"  FROM {name}.files GROUP BY 1 ORDER BY 1 DESC LIMIT 3",
    )


def _files(catalog: Catalog, table: str) -> list[tuple[str, int, int]]:
    """Return path, size and modification time of all data files."""
    files = Folder(catalog.get_table(table).location).files("*=*")
    return [(file.path, file.size_bytes, file.modified_at_ms) for file in files]

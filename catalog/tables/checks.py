"""Checks for operations that some tables do not support.

Views have neither files nor partitions, some formats are only recorded, and only Iceberg's metadata describes the
contents of an Iceberg table.
"""

from __future__ import annotations

from collections.abc import Collection

from catalog.errors import (
    IcebergTableError,
    InvalidSchemeError,
    InvalidTableError,
    NotATableError,
    UnsupportedChangeError,
    UnsupportedFormatError,
)
from catalog.model import READABLE_FORMATS, Buckets, FileFormat, Table
from catalog.schemes.model import Scheme


def refuse_view(table: Table, reason: str) -> None:
    """Refuse an operation that views do not support.

    Args:
        reason: What the message says after "is a view, which", for instance `has no partitions`.

    Raises:
        NotATableError: It is a view.
    """
    if table.is_view:
        raise NotATableError(f"{table.full_name} is a view, which {reason}; name a table")


def refuse_iceberg(table: Table) -> None:
    """Refuse to use the Hive definition, partitions and indexes of a table whose files Iceberg manages.

    Raises:
        IcebergTableError: It is an Iceberg table.
    """
    if table.is_only_iceberg:
        raise IcebergTableError(
            f"table {table.full_name} is an Iceberg table of other engines (metadata: {table.metadata_location}), so "
            "the catalog does not manage its partitions, indexes and files; read and change it as Iceberg, through "
            "Iceberg's REST catalog, or the catalog `calve` of Spark or PyIceberg"
        )
    if table.is_iceberg:
        raise IcebergTableError(
            f"table {table.full_name} is an Iceberg table (metadata: {table.metadata_location}), so the catalog does "
            "not manage its partitions, indexes and files; read and change it as Iceberg, through the catalog `calve` "
            "of Spark or PyIceberg, or revert it to Hive first: CALL iceberg.system.revert(schema_name => "
            f"'{table.database}', table_name => '{table.name}')"
        )


def require_keys_of_new(name: str, keys: Collection[object]) -> None:
    """Refuse to load into a table that does not exist yet, if the load names no partition keys.

    Args:
        name: `database.table`.

    Raises:
        InvalidTableError: It names none.
    """
    if not keys:
        raise InvalidTableError(
            f"table {name} is new and has no partition keys; name them with their types in `keys`, such as day date"
        )


def require_scheme(table: Table) -> Table:
    """Return a table that has a partition scheme.

    Raises:
        InvalidSchemeError: It has none.
    """
    if table.scheme is None:
        raise InvalidSchemeError(f"table {table.full_name} has no partition scheme")
    return table


def check_stored_as_iceberg(name: str, scheme: Scheme | None, buckets: Buckets | None) -> None:
    """Check that a new table can be stored as Iceberg.

    Raises:
        InvalidTableError: It has a partition scheme or buckets.
    """
    if scheme is not None:
        raise InvalidTableError(
            f"table {name} has a partition scheme, with which it is an Iceberg table anyway; remove the format iceberg"
        )
    if buckets is not None:
        raise InvalidTableError(f"table {name} is stored as Iceberg, which does not have Hive's buckets; remove them")


def refuse_stored_as_iceberg(table: Table, what: str, instead: str) -> None:
    """Refuse an operation that does not apply to tables stored as Iceberg.

    Args:
        what: The operation, as the subject of a sentence, for instance `MSCK REPAIR`.
        instead: What to do instead, as a sentence without a full stop.

    Raises:
        UnsupportedChangeError: The table is stored as Iceberg.
    """
    if table.is_stored_as_iceberg:
        raise UnsupportedChangeError(
            f"table {table.full_name} is stored as Iceberg, where snapshots have the partitions with their rows, so "
            f"{what} does not apply. {instead}"
        )


def require_readable_format(table: Table, own_format: FileFormat | None = None) -> None:
    """Refuse to read or write files whose format Calve only records.

    Args:
        own_format: The format of a partition that differs from its table's.

    Raises:
        UnsupportedFormatError: Calve neither reads nor writes the format.
    """
    file_format = own_format or table.format
    if not file_format.is_readable:
        owner = f"table {table.full_name}" if file_format is table.format else f"a partition of {table.full_name}"
        raise UnsupportedFormatError(
            f"{owner} is stored as {file_format.upper()}, which Calve records but neither reads nor writes; "
            f"supported formats are {', '.join(readable.upper() for readable in READABLE_FORMATS)}"
        )


def require_loadable(table: Table) -> None:
    """Refuse to write rows into what is no table, or has files that Calve does not write.

    Raises:
        NotATableError: It is a view.
        IcebergTableError: It is an Iceberg table.
        UnsupportedFormatError: Calve only records the format.
        UnsupportedChangeError: It has buckets.
    """
    refuse_view(table, "has no rows of its own to add to")
    refuse_iceberg(table)
    require_readable_format(table)
    _refuse_buckets(table)


def bucket_count(table: Table) -> int | None:
    """Return the number of buckets in which engines look for a table's rows; None without buckets.

    Source: Spark's `HiveExternalCatalog` (`DATASOURCE_SCHEMA_NUMBUCKETS`).
    """
    if table.has_file_rows:
        return None
    if table.buckets is not None:
        return table.buckets.count
    text = table.properties.get("spark.sql.sources.schema.numBuckets", "")
    return int(text) if text.isdecimal() else None


def _refuse_buckets(table: Table) -> None:
    """Refuse to write files that other engines would take for buckets, and join wrongly."""
    if (count := bucket_count(table)) is not None:
        raise UnsupportedChangeError(
            f"table {table.full_name} has {count} buckets, which engines find by the names of files, and Calve writes "
            "files without buckets; write the rows with the engine that made the table, or copy it to a table without "
            "buckets with CREATE TABLE … AS SELECT"
        )


def require_value_rows(table: Table) -> None:
    """Refuse to append rows by partition values, unless the table is an unpartitioned or Hive-style one.

    Raises:
        UnsupportedChangeError: It has a partition scheme, which places the rows.
        CatalogError: As for `require_loadable`.
    """
    require_loadable(table)
    if table.scheme is not None:
        raise UnsupportedChangeError(
            f"table {table.full_name} has a partition scheme ({table.scheme.type} on {table.scheme.column}), which "
            f"places rows as they are loaded; use `spark_jobs.writing.scheme_loading.load_rows`, or INSERT INTO "
            f"{table.full_name} with `calve sql` or the DAG run_statement"
        )

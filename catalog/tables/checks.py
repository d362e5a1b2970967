"""What not every table can do.

Views have neither files nor partitions, some formats are recorded only, and what is in an Iceberg table only Iceberg's
metadata says.
"""

from __future__ import annotations

from catalog.errors import IcebergTableError, NotATableError, UnsupportedChangeError, UnsupportedFormatError
from catalog.model import READABLE_FORMATS, FileFormat, Table


def refuse_view(table: Table, reason: str) -> None:
    """Refuse what a view cannot do.

    Args:
        reason: For instance `has no partitions`, behind the view's name.

    Raises:
        NotATableError: It is a view.
    """
    if table.is_view:
        raise NotATableError(f"{table.full_name} is a view, which {reason}; name a table")


def refuse_iceberg(table: Table) -> None:
    """Refuse to read or change a table by its Hive definition, partitions and indexes when Iceberg keeps its files.

    Raises:
        IcebergTableError: It is an Iceberg table.
    """
    if table.is_iceberg:
        raise IcebergTableError(
            f"table {table.full_name} is an Iceberg table (metadata: {table.metadata_location}), so its partitions, "
            "indexes and files are not the catalog's; read and change it as Iceberg, through the catalog `calve` of "
            "Spark or PyIceberg, or take it back to Hive first: CALL iceberg.system.revert(schema_name => "
            f"'{table.database}', table_name => '{table.name}')"
        )


def require_readable_format(table: Table, own_format: FileFormat | None = None) -> None:
    """Refuse to read or write files of a table, or of a partition with a format of its own, that nobody here can.

    Raises:
        UnsupportedFormatError: The format is recorded only.
    """
    found = own_format or table.format
    if not found.is_readable:
        whose = f"table {table.full_name}" if found is table.format else f"a partition of {table.full_name}"
        raise UnsupportedFormatError(
            f"{whose} is stored as {found.upper()}, which is recorded only, neither read nor written; "
            f"these are: {', '.join(each.upper() for each in READABLE_FORMATS)}"
        )


def require_value_rows(table: Table) -> None:
    """Refuse to add rows to what is no table with Hive-style partitions, or none, of a format that is written here.

    Raises:
        NotATableError: It is a view.
        UnsupportedFormatError: The format is recorded only.
        UnsupportedChangeError: It has a partition scheme, by which a statement loads it.
    """
    refuse_view(table, "has no rows of its own to add to")
    refuse_iceberg(table)
    require_readable_format(table)
    if table.scheme is not None:
        raise UnsupportedChangeError(
            f"table {table.full_name} has a partition scheme ({table.scheme.type} on {table.scheme.column}), by which "
            f"its rows are placed as they are loaded; use INSERT INTO {table.full_name}, or LOAD DATA INPATH '…' INTO "
            f"TABLE {table.full_name}, with `calve sql` or the DAG run_statement"
        )

"""Publication of tables of earlier versions, whose files Iceberg's metadata do not have yet.

Footers are read and manifests written without a lock; a short transaction then checks that the table has the same files
still, and publishes it. After a kill the table is as before, and vacuum deletes the manifests. No data file is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, func, inspect, select

from catalog.datafiles.files import NewFile
from catalog.datafiles.publishing import FileSwap, publish, published_definition, written_manifests
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point, reached
from catalog.storage import Storage
from catalog.storage.schema import DatabaseRow, DataFileRow, TableRow
from catalog.tables.columns import TableColumns
from catalog.tables.definitions import Definitions

_BATCH = 5_000
_THREADS = 8
_ATTEMPTS = 3
"""The last attempt prepares the files under the table's lock, so that loads cannot delay it for ever."""


def unpublished_tables(connection: Connection) -> dict[str, int]:
    """Return the tables with a partition scheme that other engines do not see, because an earlier version made them.

    The schema may be that of an earlier version, too.

    Returns:
        `database.name` → the number of its files.
    """
    count = select(func.count()).where(DataFileRow.table_id == TableRow.id).scalar_subquery()
    query = (
        select(DatabaseRow.name, TableRow.name, count)
        .join(TableRow, TableRow.database_id == DatabaseRow.id)
        .where(TableRow.scheme.is_not(None))
        .order_by(DatabaseRow.name, TableRow.name)
    )
    tables = inspect(connection)
    if not tables.has_table(DataFileRow.__tablename__):
        return {}
    if any(column["name"] == TableRow.published_location.key for column in tables.get_columns(TableRow.__tablename__)):
        query = query.where(TableRow.published_location.is_(None))
    return {str(TableName(database, name)): files for database, name, files in connection.execute(query)}


def publish_earlier(storage: Storage, definitions: Definitions, name: str) -> int:
    """Publish a table of an earlier version; return the number of its files.

    Safe to repeat, and to run in several processes at once.

    Raises:
        UnsupportedIcebergTypeError, ReservedColumnError: Iceberg has no such columns; Calve still reads and writes the
            table.
        TableAlreadyExistsError: There is an Iceberg table or view of this name.
        TableNotFoundError: The table was dropped meanwhile.
        StorageError: A data file cannot be read, or the metadata cannot be written.
    """
    _give_part_ids(storage, definitions, name)
    for attempt in range(_ATTEMPTS):
        with storage.read() as connection:
            table = definitions.get_table(name, connection)
            before = _fingerprint(connection, table)
            definition = published_definition(connection, table)
        prepared = None if attempt == _ATTEMPTS - 1 else written_manifests(definition, table, _files(storage, table))
        reached(Point.MANIFEST_WRITTEN)
        with storage.write() as connection:
            table = definitions.lock_table(connection, table, exclusive=True)
            if table.published_location is not None:
                return before[0]
            count, *_ = now = _fingerprint(connection, table)
            if prepared is None:
                prepared = written_manifests(definition, table, _files(storage, table))
            elif now != before:
                continue
            publish(connection, table, FileSwap(prepared=prepared) if count else None)
            reached(Point.CHANGED)
        reached(Point.COMMITTED)
        return int(count)
    raise AssertionError("the last attempt returns")


def _give_part_ids(storage: Storage, definitions: Definitions, name: str) -> None:
    """Store ids of the fields inside a table's columns, so that later columns get others."""
    table = definitions.get_table(name)
    if TableColumns.of(table).numbered().last_id == table.last_column_id:
        return
    with storage.write() as connection:
        table = definitions.lock_table(connection, table, exclusive=True)
        definitions.update_table(connection, table, columns=TableColumns.of(table).numbered())


def _files(storage: Storage, table: Table) -> Iterator[NewFile]:
    """Yield the files of a table with the metrics of their footers."""
    # Imported late, as in `catalog.datafiles.publishing`.
    from catalog.datafiles.footers import DataFileReader

    reader, after = DataFileReader(table), 0
    query = (
        select(
            DataFileRow.id, DataFileRow.partition_id, DataFileRow.path, DataFileRow.row_count, DataFileRow.size_bytes
        )
        .where(DataFileRow.table_id == table.id)
        .order_by(DataFileRow.id)
        .limit(_BATCH)
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        while True:
            with storage.read() as connection:
                batch = connection.execute(query.where(DataFileRow.id > after)).all()
            if not batch:
                return
            after = batch[-1].id
            files = [NewFile(row.partition_id, row.path, row.row_count, row.size_bytes, {}) for row in batch]
            yield from pool.map(reader.with_metrics, files)


def _fingerprint(connection: Connection, table: Table) -> tuple[int, int, int, int]:
    """Return numbers that change with the table's files and columns; rows of files are never written again."""
    query = select(func.count(), func.max(DataFileRow.id), func.sum(DataFileRow.id))
    count, last, total = connection.execute(query.where(DataFileRow.table_id == table.id)).one()
    return int(count), int(last or 0), int(total or 0), table.version

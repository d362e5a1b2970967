"""Tables stored as Iceberg: what the catalog and the published snapshot say about partitions and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from catalog import Catalog, IndexState, Table
from catalog.datafiles.files import NewFile
from catalog.datafiles.footers import DataFileReader
from catalog.datafiles.manifest import write_manifest
from catalog.datafiles.publishing import published_layout
from catalog.model.partition_names import partition_path
from catalog.operations.records import OperationKind
from tests.support.published import published

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]
Values = tuple[str | None, ...]

KEYS = {
    "a": "tinyint",
    "b": "smallint",
    "c": "bigint",
    "d": "decimal(7,2)",
    "e": "date",
    "f": "timestamp",
    "g": "string",
    "h": "varchar(5)",
    "i": "char(4)",
    "j": "boolean",
    "k": "double",
}
"""Partition keys of all types."""

EXTREMES = (
    "(1, -128, -32768, -9223372036854775808, -99999.99, DATE '0001-01-01', TIMESTAMP '1500-02-28 23:59:59.000001', "
    "'é/=%#漢 \U0001f600', '  x ', 'ab  ', true, -0.5)",
    "(2, 127, 32767, 9223372036854775807, 0.01, DATE '1582-10-04', TIMESTAMP '1969-12-31 23:59:59.999999', "
    "'a''b\"c', ' ', 'x', false, 1e300)",
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(4, 0, 0, 0, 0.00, DATE '9999-12-31', TIMESTAMP '9999-12-31 00:00:00', '', 'b', 'b', true, 0.0)",
)
"""Rows of a table with the column id and these keys, with values at the ends of types."""


def check_partitions(catalog: Catalog, name: str) -> None:
    """Check that the snapshot has the catalog's files, that partitions count them, and that indexes have them all."""
    # Takes in what other engines have committed.
    scan = catalog.scan_partition_files(name)
    table, seen = catalog.get_table(name), published(catalog, name)
    record_of = {
        partition.id: published_layout(table).partition_record(partition.values) for partition in scan.partitions
    }
    tasks = list(seen.scan().plan_files())
    width = len(table.partition_keys)
    planned = [
        (task.file.file_path, tuple(task.file.partition[key] for key in range(width)), task.file.record_count)
        for task in tasks
    ]
    expected = [
        (f"{table.location}/{file.path}", record_of.get(file.partition_id, ()), file.row_count) for file in scan.files
    ]
    if all(key.type != "double" for key in table.partition_keys):
        # PyIceberg 0.12 rounds the doubles of partition records to floats.
        assert ordered(planned) == ordered(expected), (ordered(planned), ordered(expected))
    for counted, value in (
        ("file_count", lambda _: 1),
        ("row_count", lambda file: file.row_count),
        ("size_bytes", lambda file: file.size_bytes),
    ):
        totals: Counter[int] = Counter()
        measure: Callable[[Any], int] = value
        for file in scan.files:
            totals[file.partition_id] += measure(file)
        if table.partition_keys:
            assert {each.id: getattr(each, counted) for each in scan.partitions} == dict(totals)
    if table.partition_keys:
        for index in catalog.get_partition_indexes(name):
            if index.state is IndexState.ACTIVE:
                assert catalog.verify_partition_index(name, index.name).is_exact
    if (snapshot := seen.current_snapshot()) is not None and snapshot.summary is not None:
        assert snapshot.summary["total-data-files"] == str(len(tasks))
        assert snapshot.summary["total-records"] == str(sum(file.row_count for file in scan.files))
        if not table.delete_file_count:
            assert snapshot.summary["total-files-size"] == str(sum(file.size_bytes for file in scan.files))


def rows_by_calve(spark: SparkSession, catalog: Catalog, name: str, where: str | None = None) -> list[Row]:
    """Return the rows that Calve's reader returns, sorted."""
    from spark_jobs.reading.tables import read_table

    return ordered(map(tuple, read_table(spark, name, where, catalog=catalog).collect()))


def rows_by_engines(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, catalog: Catalog, name: str
) -> dict[str, list[Row]]:
    """Return the rows that Iceberg's Spark reader, PyIceberg and DuckDB return, sorted."""
    from spark_jobs.reading.iceberg import read_metadata_file

    table = catalog.get_table(name)
    assert table.published_location is not None
    scanned = duck.execute(f"SELECT * FROM iceberg_scan('{table.published_location}')")
    return {
        "spark": ordered(map(tuple, read_metadata_file(spark, table.published_location).collect())),
        "pyiceberg": _arrow_rows(published(catalog, name).scan().to_arrow()),
        "duckdb": _arrow_rows(scanned.to_arrow_table()),
    }


def _arrow_rows(table: pa.Table) -> list[Row]:
    return ordered(zip(*(column.to_pylist() for column in table.columns), strict=True))


def plain(row: Row) -> Row:
    """Return a row with instants without zones, and without the blanks of chars, which only Calve adds."""
    return tuple(
        value.astimezone(UTC).replace(tzinfo=None)
        if isinstance(value, datetime) and value.tzinfo is not None
        else value.rstrip()
        if isinstance(value, str)
        else value
        for value in row
    )


def ordered(rows: Any) -> list[Row]:
    """Return rows in one order, whatever their types."""
    return sorted(map(tuple, rows), key=repr)


def write_partitions(table: Table, folder: str, rows: Mapping[Values, Sequence[int]]) -> None:
    """Write integers of the column `v` to a file for each partition, and list the files, as a Spark job does.

    The keys of the table are strings and integers.
    """
    reader = DataFileReader(table)

    def files() -> Iterator[NewFile]:
        for values, numbers in rows.items():
            names = [f"key.{name}" for name in table.key_names]
            parent = "/".join(part for part in (folder, partition_path(names, values)) if part)
            path = f"{parent}/part-00000-{uuid4()}.parquet"
            target = Path(table.location, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            columns = {"v": pa.array(numbers, pa.int32())}
            for key, value in zip(table.partition_keys, values, strict=True):
                is_number = key.type == "int"
                typed = int(value) if value is not None and is_number else value
                columns[key.name] = pa.array([typed] * len(numbers), pa.int32() if is_number else pa.string())
            pq.write_table(pa.table(columns), target)
            yield reader.with_metrics(NewFile(0, path, len(numbers), target.stat().st_size, {}, values=values))

    write_manifest(table, folder, files())


def append(catalog: Catalog, operation: str, name: str, rows: Mapping[Values, Sequence[int]]) -> dict[str, Any]:
    """Append rows in one operation, as INSERT does."""
    begun = catalog.operations.begin(operation, OperationKind.APPEND_ROWS, name, is_exclusive=True)
    with catalog.operations.attempt(operation, "append_rows") as attempt:
        table = catalog.get_table(name)
        folder = catalog.loading.files_folder(table, begun, attempt)
        write_partitions(table, folder, rows)
        return catalog.loading.publish(operation, "append_rows", attempt, folder, is_load=False)


def stored_rows(catalog: Catalog, name: str) -> list[Row]:
    """Return the rows that PyIceberg reads, sorted, after checking the partitions."""
    check_partitions(catalog, name)
    return _arrow_rows(published(catalog, name).scan().to_arrow())

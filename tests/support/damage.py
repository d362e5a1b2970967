"""Damages to plant in files and rows, for checks of the catalog."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import delete, func, insert, select, update

from catalog.operations.records import LEASE_MS, OperationKind
from catalog.storage.schema import (
    ColumnStatisticsRow,
    DataFileRow,
    IcebergTableRow,
    IndexItemRow,
    OperationRow,
    PartitionRow,
    TableRow,
)
from tests.support.foreign_files import commit_path
from tests.support.iceberg_tables import sql_catalog
from tests.support.tables_to_damage import Planted, url_of

OLD_SECONDS = 1_000_000_000
"""The time of last change of files that are older than any grace period."""


# --- damages of files ---------------------------------------------------------------------------------------------


def data_missing(table: Planted) -> None:
    table.files[0].unlink()


def data_doubled(table: Planted) -> None:
    """Commit a live file a second time."""
    file = table.files[0]
    with sql_catalog(url_of(table.catalog)) as iceberg:
        commit_path(iceberg.load_table(table.name), str(file), file.stat().st_size)


def deletes_missing(table: Planted) -> None:
    table.delete_files[0].unlink()


def deletes_truncated(table: Planted) -> None:
    os.truncate(table.delete_files[0], 20)


def data_truncated(table: Planted) -> None:
    os.truncate(table.files[0], table.files[0].stat().st_size - 7)


def data_grown(table: Planted) -> None:
    with table.files[0].open("ab") as file:
        file.write(b"more")


def data_replaced(table: Planted) -> None:
    """Replace a file by one of the same size with fewer rows."""
    file = max(table.files, key=lambda file: pq.read_metadata(file).num_rows)
    _replace(file, pq.read_table(file, partitioning=None).slice(0, 1))


def data_with_other_values(table: Planted) -> None:
    """Replace a file by one of the same size, with as many rows of other values."""
    file = table.files[0]
    rows = pq.read_table(file, partitioning=None)
    column = next(name for name in ("id", "v") if name in rows.column_names)
    position = rows.column_names.index(column)
    values = pa.array([value.as_py() + 100 for value in rows[column]], rows.schema.field(position).type)
    _replace(file, rows.set_column(position, rows.schema.field(position), values))


def _replace(file: Path, rows: pa.Table) -> None:
    """Write rows to a file, and keep its size, by metadata that no reader looks at."""
    size = file.stat().st_size

    def write(padding: int) -> int:
        with pq.ParquetWriter(
            file, rows.schema, store_schema=False, use_dictionary=False, compression="none"
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"p": "x" * padding})
        return file.stat().st_size

    padding = size - write(0)
    while padding > 0 and write(padding) > size:
        # The length of a longer text takes more bytes, too.
        padding -= 1
    assert file.stat().st_size == size


def data_corrupted(table: Planted) -> None:
    """Change bytes of a file's pages, but not its footer."""
    file = table.files[0]
    content = bytearray(file.read_bytes())
    content[4:40] = b"\xff" * 36
    file.write_bytes(content)


def data_extra(table: Planted) -> None:
    """Put a file beside a live one, as a writer does that died before its commit, long ago."""
    file = table.files[0].with_name("other.parquet") if table.kind != "stored" else table.folder / "data/other.parquet"
    if table.kind == "scheme":
        file = table.folder / "data" / "other.parquet"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(table.files[0].read_bytes())
    os.utime(file, (OLD_SECONDS, OLD_SECONDS))


def manifest_missing(table: Planted) -> None:
    table.manifest.unlink()


def manifest_truncated(table: Planted) -> None:
    os.truncate(table.manifest, table.manifest.stat().st_size - 20)


def manifest_list_missing(table: Planted) -> None:
    table.manifest_list.unlink()


def manifest_list_unreadable(table: Planted) -> None:
    table.manifest_list.write_bytes(b"nothing that Avro knows")


def manifest_list_with_other_counts(table: Planted) -> None:
    def change(row: dict[str, Any]) -> None:
        row["added_files_count"] += 1

    _change_manifest_list(table, change)


def manifest_list_with_other_bounds(table: Planted) -> None:
    def change(row: dict[str, Any]) -> None:
        summary = row["partitions"][0]
        high = summary["upper_bound"]
        summary["lower_bound"] = high[:-1] + bytes([high[-1] + 1])
        summary["upper_bound"] = summary["lower_bound"]

    _change_manifest_list(table, change)


def manifest_list_with_a_cut_bound(table: Planted) -> None:
    def change(row: dict[str, Any]) -> None:
        row["partitions"][0]["upper_bound"] = b"\x01"

    _change_manifest_list(table, change)


def _change_manifest_list(table: Planted, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the first row of the current manifest list."""
    with table.manifest_list.open("rb") as file:
        opened = fastavro.reader(file)
        schema, rows, codec = opened.writer_schema, [dict(row) for row in opened], opened.codec
        kept = {name: value for name, value in opened.metadata.items() if not name.startswith("avro.")}
    change(rows[0])
    with table.manifest_list.open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec, metadata=kept)


def metadata_missing(table: Planted) -> None:
    table.metadata.unlink()


def metadata_unreadable(table: Planted) -> None:
    table.metadata.write_text('{"format-version": 2, ')


# --- damages of rows ----------------------------------------------------------------------------------------------


def file_row_missing(table: Planted) -> None:
    table.change(delete(DataFileRow).where(table.first(DataFileRow)))


def file_row_doubled(table: Planted) -> None:
    names = [column.name for column in DataFileRow.__table__.columns if column.name != "id"]
    columns = [getattr(DataFileRow, name) for name in names]
    table.change(insert(DataFileRow).from_select(names, select(*columns).where(table.first(DataFileRow))))


def file_row_extra(table: Planted) -> None:
    names = [column.name for column in DataFileRow.__table__.columns if column.name != "id"]
    columns = [DataFileRow.path + "x" if name == "path" else getattr(DataFileRow, name) for name in names]
    table.change(insert(DataFileRow).from_select(names, select(*columns).where(table.first(DataFileRow))))


def file_row_count(table: Planted) -> None:
    table.change(update(DataFileRow).where(table.first(DataFileRow)).values(row_count=DataFileRow.row_count + 1))


def file_row_size(table: Planted) -> None:
    table.change(update(DataFileRow).where(table.first(DataFileRow)).values(size_bytes=DataFileRow.size_bytes + 1))


def file_row_bounds(table: Planted) -> None:
    with table.catalog.storage.read() as connection:
        text = connection.scalar(select(DataFileRow.statistics).where(table.first(DataFileRow)))
    statistics = json.loads(text or "")
    statistics["k"][0] = statistics["k"][1]
    table.change(update(DataFileRow).where(table.first(DataFileRow)).values(statistics=json.dumps(statistics)))


def file_row_of_no_partition(table: Planted) -> None:
    table.change(update(DataFileRow).where(table.first(DataFileRow)).values(partition_id=987_654))


def file_row_of_other_partition(table: Planted) -> None:
    last = select(func.max(PartitionRow.id)).where(PartitionRow.table_id == table.id).scalar_subquery()
    table.change(update(DataFileRow).where(table.first(DataFileRow)).values(partition_id=last))


def partition_row_missing(table: Planted) -> None:
    table.change(delete(PartitionRow).where(table.first(PartitionRow)))


def partition_row_extra(table: Planted) -> None:
    columns = [column for column in PartitionRow.__table__.columns if column.name != "id"]
    with table.catalog.storage.read() as connection:
        row = dict(connection.execute(select(*columns).where(table.first(PartitionRow))).one()._mapping)
    table.change(insert(PartitionRow).values(**{**row, "identity": b"0123456789abcdef", "packed_values": "77"}))


def partition_row_under_other_key(table: Planted) -> None:
    table.change(update(PartitionRow).where(table.first(PartitionRow)).values(packed_values="99"))


def counts_wrong(table: Planted) -> None:
    table.change(update(PartitionRow).where(table.first(PartitionRow)).values(size_bytes=PartitionRow.size_bytes + 1))


def row_counts_wrong(table: Planted) -> None:
    table.change(update(PartitionRow).where(table.first(PartitionRow)).values(row_count=PartitionRow.row_count + 1))


def index_item_missing(table: Planted) -> None:
    index, key, partition = table.first_item()
    row = IndexItemRow
    table.change(delete(row).where(row.index_id == index, row.key == key, row.partition_id == partition))


def index_item_extra(table: Planted) -> None:
    index, key, partition = table.first_item()
    table.change(insert(IndexItemRow).values(index_id=index, key=key, partition_id=partition + 1_000))


def index_item_under_other_key(table: Planted) -> None:
    index, key, partition = table.first_item()
    row = IndexItemRow
    is_first = row.index_id == index, row.key == key, row.partition_id == partition
    table.change(update(row).where(*is_first).values(key=key + b"\x07"))


def statistics_of_no_partition(table: Planted) -> None:
    table.change(_statistics(table, 987_654, 0))


def statistics_wrong(table: Planted) -> None:
    with table.catalog.storage.read() as connection:
        number = connection.scalar(select(PartitionRow.id).where(table.first(PartitionRow)))
    table.change(_statistics(table, number or 0, 1_000))


def _statistics(table: Planted, partition_id: int, nulls: int) -> Any:
    values = {"partition_id": partition_id, "column_name": "id", "statistics": {"kind": "long", "nulls": nulls}}
    return insert(ColumnStatisticsRow).values(table_id=table.id, analysed_at_ms=1, **values)


def pointer_missing(table: Planted) -> None:
    table.change(delete(IcebergTableRow).where(IcebergTableRow.table_name == table.name.partition(".")[2]))


def operation_stuck(table: Planted) -> None:
    operations = table.catalog.operations
    operations.begin("stuck", OperationKind.VERIFY_INDEX, table.name)
    operations.heartbeat("stuck", "load", operations.start_job("stuck", "load"))
    row = OperationRow
    table.change(update(row).where(row.id == "stuck").values(heartbeat_at_ms=row.heartbeat_at_ms - LEASE_MS))


def location_of_other_table(table: Planted) -> None:
    other = table.catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("day", "int")])
    with table.catalog.storage.read() as connection:
        key = connection.scalar(select(TableRow.location_key).where(TableRow.id == table.id))
    location = f"{table.folder}/inside"
    inside = bytes(key or b"") + b"inside/"
    table.change(update(TableRow).where(TableRow.id == other.id).values(location=location, location_key=inside))


def location_of_other_partition(table: Planted) -> None:
    last = select(func.max(PartitionRow.id)).where(PartitionRow.table_id == table.id).scalar_subquery()
    row = PartitionRow
    table.change(update(row).where(row.id == last).values(location=f"{table.folder}/k=1"))

"""Tables of each kind with real files, in which tests plant damages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import func, select

from catalog import Catalog, IndexDefinition, NewPartition, Table
from catalog.datafiles.committing import FileChange
from catalog.datafiles.footers import DataFileReader, column_types
from catalog.datafiles.manifest import write_manifest
from catalog.engine_tables.model import NewTable
from catalog.engine_tables.names import Identifier, Namespace
from catalog.iceberg.pointers import find_pointer
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.schemes.hashing import HashScheme
from catalog.storage.schema import IndexItemRow
from tests.support.iceberg_tables import append as append_by_engine
from tests.support.iceberg_tables import make_orders, migrate, sql_catalog, write_rows
from tests.support.partition_files import append
from tests.support.published import duckdb_at
from tests.support.rest_server import rest_server


@dataclass
class Planted:
    """A table to damage.

    Attributes:
        kind: One of `KINDS`.
        name: As findings have it.
        folder: The table's folder.
    """

    catalog: Catalog
    kind: str
    name: str
    folder: Path

    @property
    def files(self) -> list[Path]:
        """The live data files, sorted."""
        if self.kind == "hive":
            return sorted(self.folder.rglob("*.parquet"))
        return sorted(_local(task.file) for task in self._tasks)

    @property
    def delete_files(self) -> list[Path]:
        """The live files of deleted positions, sorted."""
        return sorted({_local(file) for task in self._tasks for file in task.delete_files})

    @property
    def _tasks(self) -> Iterable[FileScanTask]:
        return StaticTable.from_metadata(str(self.metadata)).scan().plan_files()

    @property
    def metadata(self) -> Path:
        """The current metadata file."""
        database, _, table = self.name.partition(".")
        with self.catalog.storage.read() as connection:
            location = find_pointer(connection, database, table)
        assert location is not None
        return Path(location.removeprefix("file://"))

    @property
    def manifest_list(self) -> Path:
        """The manifest list of the current snapshot."""
        snapshot = StaticTable.from_metadata(str(self.metadata)).current_snapshot()
        assert snapshot is not None
        return Path(snapshot.manifest_list.removeprefix("file://"))

    @property
    def manifest(self) -> Path:
        """A manifest of the current snapshot."""
        table = StaticTable.from_metadata(str(self.metadata))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file://"))

    def change(self, statement: Any) -> None:
        """Run a statement in the catalog's database, as nobody should."""
        with self.catalog.storage.write() as connection:
            assert connection.execute(statement).rowcount in (1, -1), statement

    @property
    def id(self) -> int:
        """The table's id in the catalog."""
        return self.catalog.get_table(self.name).id

    def first(self, row: Any) -> Any:
        """Return a condition for the first row of the table among file rows or partitions."""
        return row.id == select(func.min(row.id)).where(row.table_id == self.id).scalar_subquery()

    def first_item(self) -> tuple[int, bytes, int]:
        """Return the index item with the lowest key of the table's only index."""
        with self.catalog.storage.read() as connection:
            row = IndexItemRow
            found = connection.execute(select(row.index_id, row.key, row.partition_id).order_by(row.key)).first()
        assert found is not None
        return tuple(found)


def _local(file: DataFile) -> Path:
    return Path(file.file_path.removeprefix("file://"))


def hive(catalog: Catalog) -> Planted:
    """Return a Hive-style table whose partitions have counts."""
    name = "demo.hive"
    by_k = [IndexDefinition("by_k", ("k",))]
    table = catalog.create_table(
        name, columns=[("id", "bigint"), ("note", "string")], partition_keys=[("k", "int")], indexes=by_k
    )
    partitions = []
    for k, ids in ((1, [1, 2, 3]), (2, [4])):
        size = Path(write_rows(f"{table.location}/k={k}", ids)).stat().st_size
        partitions.append(NewPartition((str(k),), None, 1, len(ids), size))
    catalog.add_partitions(name, partitions)
    return Planted(catalog, "hive", name, Path(table.location))


def stored(catalog: Catalog) -> Planted:
    """Return a table stored as Iceberg."""
    name = "demo.stored"
    by_k = [IndexDefinition("by_k", ("k",))]
    table = catalog.create_table(
        name, columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg", indexes=by_k
    )
    append(catalog, "append-1", name, {("1",): [1, 2, 3], ("2",): [4]})
    append(catalog, "append-2", name, {("2",): [5, 6]})
    return Planted(catalog, "stored", name, Path(table.location))


def migrated(catalog: Catalog) -> Planted:
    """Return a migrated table."""
    name = "demo.migrated"
    table = make_orders(catalog, name)
    migrate(catalog, name)
    append_by_engine(str(url_of(catalog)), [8, 9], name)
    return Planted(catalog, "migrated", name, Path(table.location))


def scheme(catalog: Catalog) -> Planted:
    """Return a table with a partition scheme."""
    name = "demo.scheme"
    kinds = HashScheme("k", "int", ("v",), 3)
    table = catalog.create_table(name, columns=[("v", "int"), ("k", "int")], scheme=kinds)
    of = {number: [value for value in range(100) if kinds.partition_of(value) == number] for number in kinds.ids}
    load(catalog, table, "load-1", {0: of[0][:3], 1: of[1][:2], 2: of[2][:1]})
    load(catalog, table, "load-2", {0: of[0][3:4]})
    return Planted(catalog, "scheme", name, Path(table.location))


def load(catalog: Catalog, table: Table, operation: str, rows: dict[int, Sequence[int]]) -> None:
    """Load integers into the partitions of a table with a scheme, without Spark."""
    begun = catalog.operations.begin(operation, OperationKind.LOAD_ROWS, table.full_name, is_exclusive=True)
    attempt = catalog.operations.start_job(operation, "load")
    folder = attempt_folder(begun, attempt)
    reader = DataFileReader(table, column_types(["k", "v"], {"k": "int", "v": "int"}))
    files = []
    for number, values in rows.items():
        path = f"{folder}/calve_partition_id={number}/part-{number}.parquet"
        target = Path(table.location, path)
        target.parent.mkdir(parents=True)
        pq.write_table(pa.table({"v": pa.array(values, pa.int32()), "k": pa.array(values, pa.int32())}), target)
        files.append(reader.read(path, target.stat().st_size, number))
    write_manifest(table, folder, files)
    assert table.scheme is not None
    change = FileChange(table.scheme, table.scheme, folder)
    catalog.committer.commit(operation, "load", attempt, change, {})


def of_rest(catalog: Catalog, kind: str = "rest") -> Planted:
    """Return a table that an engine has made through the REST door."""
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "note", "type": "string", "required": False},
    ]
    identifier = Identifier.of(Namespace.of(["demo"]), kind)
    made = catalog.iceberg.create(identifier, NewTable({"type": "struct", "fields": fields}))
    _append_twice(catalog, f"demo.{kind}")
    return Planted(catalog, kind, f"demo.{kind}", Path(made.document["location"].removeprefix("file://")))


def of_sql(catalog: Catalog) -> Planted:
    """Return a table that PyIceberg has made in a namespace that is no database."""
    folder = Path(catalog.get_database("demo").location).parent / "elsewhere" / "sql"
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "note", StringType(), required=False)
    )
    with sql_catalog(url_of(catalog)) as iceberg:
        iceberg.create_namespace("elsewhere")
        iceberg.create_table("elsewhere.sql", schema, location=str(folder))
    _append_twice(catalog, "elsewhere.sql")
    return Planted(catalog, "sql", "elsewhere.sql", folder)


def with_deletes(catalog: Catalog) -> Planted:
    """Return a table of an engine of which DuckDB has deleted rows, by files of positions."""
    table = of_rest(catalog, "deletes")
    with sql_catalog(url_of(catalog)) as iceberg:
        merge_on_read = {f"write.{change}.mode": "merge-on-read" for change in ("delete", "update")}
        iceberg.load_table(table.name).transaction().set_properties(merge_on_read).commit_transaction()
    with rest_server(catalog) as address, duckdb_at(address) as duck:
        duck.execute(f"DELETE FROM lake.{table.name} WHERE id = 2")
    return table


def _append_twice(catalog: Catalog, name: str) -> None:
    with sql_catalog(url_of(catalog)) as iceberg:
        table = iceberg.load_table(name)
        for ids in ([1, 2, 3], [4]):
            table.append(
                pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array([f"n{number}" for number in ids])})
            )


def url_of(catalog: Catalog) -> str:
    return catalog.storage.url.render_as_string(hide_password=False)


KINDS: dict[str, Callable[[Catalog], Planted]] = {
    "hive": hive,
    "stored": stored,
    "migrated": migrated,
    "scheme": scheme,
    "rest": of_rest,
    "sql": of_sql,
    "deletes": with_deletes,
}

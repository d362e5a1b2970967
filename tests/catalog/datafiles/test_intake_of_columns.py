"""Columns that other engines change in tables whose files the catalog records."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, IntegerType, ListType, LongType, StringType, UUIDType

from catalog import Catalog, Column
from catalog.errors import StorageError, UnsupportedCommitError
from catalog.iceberg.layout import mapped_ids
from catalog.statements.session import Session
from catalog.tables.columns import is_plain_layout
from catalog.tables.schemes import scheme_from_properties
from tests.catalog.datafiles.test_intake import TABLE, engine, rows
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import load
from tests.support.published import check_published, duckdb_reader, published

pytestmark = pytest.mark.smoke


def test_numbers_outside_a_small_type_are_refused_by_name(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"})
    catalog.create_table(TABLE, columns=[("s", "smallint"), ("c", "int")], scheme=scheme)
    values = pa.table({"s": pa.array([1, 40_000], pa.int32()), "c": pa.array([1, 2], pa.int32())})
    engine(catalog_url, lambda table: table.append(values))
    with pytest.raises(UnsupportedCommitError, match=r"has 40000 in column s, which is a smallint"):
        catalog.alter_table(TABLE, properties={"owner": "ann"})


@pytest.mark.parametrize(
    ("kind", "numbers", "problem"),
    [
        ("tinyint", pa.array([1], pa.int32()), "has no bounds for column s"),
        ("tinyint", pa.array([None], pa.int32()), None),
        ("int", pa.array([1], pa.int32()), None),
        ("array<smallint>", pa.array([[1]], pa.list_(pa.int32())), "numbers that do not fit into the array<smallint>"),
        ("struct<x:tinyint>", pa.array([{"x": 1}]), "numbers that do not fit into the struct<x:tinyint>"),
        ("struct<tinyint:int>", pa.array([{"tinyint": 1}]), None),
    ],
)
def test_numbers_whose_bounds_are_unknown_do_not_become_others(
    catalog: Catalog, catalog_url: str, kind: str, numbers: pa.Array, problem: str | None
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"})
    catalog.create_table(TABLE, columns=[("s", kind), ("c", "int")], scheme=scheme)

    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"write.metadata.metrics.column.s": "counts"})
        types = table.schema().as_arrow()
        table.append(pa.table([numbers.cast(types.field("s").type), pa.array([1], pa.int32())], types))

    engine(catalog_url, commit)
    if problem is None:
        assert len(catalog.scan_files(TABLE).files) == 1
        return
    with pytest.raises(UnsupportedCommitError, match=problem):
        catalog.alter_table(TABLE, properties={"owner": "ann"})


def test_columns_follow_those_of_engines_by_their_ids(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    columns = [("a", "int"), ("b", "string"), ("k", "char(3)"), ("c", "int")]
    catalog.create_table(TABLE, columns=columns, scheme=scheme)
    load(catalog, "first", TABLE, range(4))

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.add_column("d", DecimalType(9, 2), doc="price")
            update.rename_column("a", "x")
            update.update_column("a", LongType())
            update.delete_column("b")
            update.move_first("k")
        table.append(pa.table({"k": ["u"], "x": [2**40], "c": pa.array([9], pa.int32()), "d": [Decimal("1.50")]}))

    engine(catalog_url, commit)
    load(catalog, "second", TABLE, [7])
    check_published(catalog, TABLE)
    table = catalog.get_table(TABLE)
    assert [(column.name, column.type, column.id) for column in table.columns] == [
        ("k", "char(3)", 3),
        ("x", "bigint", 1),
        ("d", "decimal(9,2)", 5),
        ("c", "int", 4),
    ]
    assert table.columns[2].comment == "price"
    assert [column.name for column in table.dropped_columns] == ["b"]
    assert rows(catalog_url) == [0, 1, 2, 3, 7, 9]
    catalog.alter_table(TABLE, add_columns=[("b", "date")])
    check_published(catalog, TABLE)
    assert [column.id for column in catalog.get_table(TABLE).columns if column.name == "b"] == [6]


@pytest.mark.parametrize("change", ["add", "rename"])
def test_values_of_a_dropped_column_do_not_come_back_under_its_name(
    catalog: Catalog, catalog_url: str, change: str
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("o", "string"), ("s", "string"), ("c", "int")], scheme=scheme)
    path = Path(catalog.get_table(TABLE).location, "without_ids.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"o": ["kept"], "s": ["dropped"], "c": pa.array([1], pa.int32())}), path)
    engine(catalog_url, lambda table: table.add_files([str(path)]))
    catalog.alter_table(TABLE, drop_columns=["s"])

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            if change == "add":
                update.add_column("s", StringType())
            else:
                update.rename_column("o", "s")

    engine(catalog_url, commit)
    assert len(catalog.scan_files(TABLE).files) == 1
    check_published(catalog, TABLE)
    expected = {"o": "kept", "s": None, "c": 1} if change == "add" else {"s": "kept", "c": 1}
    read = published(catalog, TABLE)
    assert read.scan().to_arrow().to_pylist() == [expected]
    query = f"SELECT s FROM iceberg_scan('{read.metadata_location}')"
    assert duckdb_reader().execute(query).fetchall() == [(expected["s"],)]


def test_a_reader_that_may_not_write_metadata_reads_on(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("s", "string"), ("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, [1])
    catalog.alter_table(TABLE, drop_columns=["s"])

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.add_column("s", StringType())

    engine(catalog_url, commit)
    with monkeypatch.context() as patched:
        patched.setattr("catalog.datafiles.publishing.publish", Mock(side_effect=StorageError("/t is read-only")))
        assert len(catalog.scan_files(TABLE).files) == 1
    assert "keeps the name mapping of an engine for now: /t is read-only" in caplog.text
    load(catalog, "second", TABLE, [2])
    check_published(catalog, TABLE)
    names = mapped_ids(published(catalog, TABLE).properties["schema.name-mapping.default"])
    ids = {column.name: column.id for column in catalog.get_table(TABLE).columns}
    assert names["s",] != ids["s"]


def test_ids_and_names_of_columns_that_engines_had_for_a_while_are_not_used_again(
    catalog: Catalog, catalog_url: str
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("a", "int"), ("c", "int")], scheme=scheme)

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.add_column("x", IntegerType())
            update.rename_column("a", "b")
        values = pa.array([7], pa.int32())
        table.append(pa.table({"b": values, "c": values, "x": values}))
        with table.update_schema() as update:
            update.delete_column("x")
            update.rename_column("b", "a")

    engine(catalog_url, commit)
    catalog.alter_table(TABLE, add_columns=[("y", "int"), ("x", "int")])
    check_published(catalog, TABLE)
    table = catalog.get_table(TABLE)
    assert [(column.name, column.id, column.file_names) for column in table.columns] == [
        ("a", 1, ("b", "a")),
        ("y", 4, ()),
        ("x", 5, ("x__5",)),
        ("c", 2, ()),
    ]
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).scan().to_arrow().to_pylist() == [{"a": 7, "y": None, "x": None, "c": 7}]


def test_files_are_read_by_ids_after_engines_have_renamed_columns_to_and_fro(
    catalog: Catalog, catalog_url: str
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("a", "int"), ("b", "int"), ("c", "int")], scheme=scheme)

    def exchange(table: IcebergTable) -> None:
        for name, new_name in (("a", "x"), ("b", "a"), ("x", "b")):
            with table.update_schema() as update:
                update.rename_column(name, new_name)

    def commit(table: IcebergTable) -> None:
        exchange(table)
        values = pa.array([7], pa.int32())
        table.append(pa.table({"b": values, "a": values, "c": values}))
        exchange(table)

    engine(catalog_url, commit)
    assert len(catalog.scan_files(TABLE).files) == 1
    check_published(catalog, TABLE)
    columns = catalog.get_table(TABLE).columns
    assert [(column.name, column.id) for column in columns] == [("a", 1), ("b", 2), ("c", 3)]
    assert not is_plain_layout(catalog.get_table(TABLE))


@pytest.mark.parametrize(
    ("change_schema", "finding"),
    [
        (lambda update: update.rename_column("c", "e"), "the partition column c was renamed to e"),
        (lambda update: update.update_column("c", LongType()), "the partition column c became long"),
        (lambda update: update.rename_column("a", "e"), "the sort column a was renamed to e"),
        (lambda update: update.add_column("n", UUIDType()), "column n of type uuid was added"),
        (lambda update: update.add_column("n", ListType(9, IntegerType())), "column n of type list<int> was added"),
        (lambda update: update.add_column("_partition_id", IntegerType()), "the reserved name _partition_id"),
    ],
)
def test_columns_that_calve_cannot_follow_are_refused_by_name(
    catalog: Catalog, catalog_url: str, change_schema: Callable[[Any], Any], finding: str
) -> None:
    properties = {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10", "SORT_COLUMNS": "a"}
    scheme = scheme_from_properties(Column("c", "int"), properties)
    catalog.create_table(TABLE, columns=[("a", "int"), ("c", "int")], scheme=scheme)

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            change_schema(update)

    engine(catalog_url, commit)
    with pytest.raises(UnsupportedCommitError, match=finding):
        catalog.alter_table(TABLE, properties={"owner": "ann"})
    assert catalog.scan_files(TABLE).engine_location is not None


def test_a_partition_column_that_an_engine_dropped_is_named_until_it_is_back(
    catalog: Catalog, catalog_url: str
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("a", "int"), ("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, range(4))

    def drop(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.delete_column("c")

    def undo(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction._apply((SetCurrentSchemaUpdate(schema_id=0),), ())

    engine(catalog_url, drop)
    with Session(catalog) as session:
        for statement in (f"SHOW PARTITIONS {TABLE}", f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('owner'='ann')"):
            with pytest.raises(UnsupportedCommitError, match="the partition column c was dropped"):
                session.execute(statement)
    assert catalog.scan_files(TABLE).engine_location is not None
    engine(catalog_url, undo)
    load(catalog, "second", TABLE, [7])
    check_published(catalog, TABLE)
    assert rows(catalog_url) == [0, 1, 2, 3, 7]


def test_partitions_by_a_field_of_a_struct_are_refused_until_they_are_undone(
    catalog: Catalog, catalog_url: str
) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("s", "struct<x:int>"), ("c", "int")], scheme=scheme)

    def partition(table: IcebergTable) -> None:
        with table.update_spec() as update:
            update.add_field("s.x", IdentityTransform())

    def undo(table: IcebergTable) -> None:
        with table.update_spec() as update:
            update.remove_field("s.x")

    engine(catalog_url, partition)
    with Session(catalog) as session:
        for statement in (f"SHOW PARTITIONS {TABLE}", f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('owner'='ann')"):
            with pytest.raises(UnsupportedCommitError, match=r"another partition spec of Iceberg.*identity"):
                session.execute(statement)
    engine(catalog_url, undo)
    assert catalog.alter_table(TABLE, properties={"owner": "ann"}).properties["owner"] == "ann"
    check_published(catalog, TABLE)

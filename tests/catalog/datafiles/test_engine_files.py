"""Data files that other engines add: how Calve reads them, and which it refuses by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType

from catalog import Catalog, Column
from catalog.datafiles.publishing import published_snapshots
from catalog.errors import UnsupportedCommitError
from catalog.iceberg.metadata import lineage
from catalog.iceberg.named_files import UnreadableFileError
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import sql_catalog
from tests.support.killed_changes import load
from tests.support.published import check_published

TABLE = "demo.t"
pytestmark = pytest.mark.smoke


@pytest.fixture
def hashed(catalog: Catalog) -> Catalog:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("a", "int"), ("b x", "int"), ("c", "int")], scheme=scheme)
    return catalog


def engine(url: str, commit: Callable[[IcebergTable], Any]) -> None:
    """Commit to the table by PyIceberg."""
    with sql_catalog(url) as iceberg:
        commit(iceberg.load_table(TABLE))


def write(catalog: Catalog, name: str = "data/added.parquet", **columns: int) -> Path:
    """Write a file of one row, without field ids, into the table's folder."""
    path = Path(catalog.get_table(TABLE).location, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: pa.array([value], pa.int32()) for column, value in columns.items()}), path)
    return path


def commit_file(url: str, path: str | Path, size_bytes: int, *partition: int) -> None:
    """Add a file without PyIceberg's own checks, as engines do that have none."""

    def commit(table: IcebergTable) -> None:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=str(path),
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            record_count=1,
            file_size_in_bytes=size_bytes,
        )
        file.spec_id = table.spec().spec_id
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)

    engine(url, commit)


def refuse(catalog: Catalog, finding: str) -> None:
    """Check that the next change is refused by name, and that the table is readable by Iceberg's reader."""
    with pytest.raises(UnsupportedCommitError, match=finding) as refused:
        catalog.alter_table(TABLE, properties={"owner": "ann"})
    assert "can still be read" in str(refused.value)
    assert catalog.get_table(TABLE).engine_location is not None


def test_files_with_or_without_ids_are_read_by_the_names_of_files_of_calve(hashed: Catalog, catalog_url: str) -> None:
    path = write(hashed, a=1, c=2)
    engine(catalog_url, lambda table: table.add_files([str(path)]))
    values = pa.array([3], pa.int32())
    # Engines write the name `b x` in another way.
    engine(catalog_url, lambda table: table.append(pa.table({"a": values, "c": values})))
    hashed.alter_table(TABLE, change_columns={"a": ("d", "int")})
    path = write(hashed, "data/renamed.parquet", d=1, c=2)
    engine(catalog_url, lambda table: table.add_files([str(path)]))
    hashed.alter_table(TABLE, drop_columns=["b x"])
    engine(catalog_url, lambda table: table.append(pa.table({"d": values, "c": values})))
    files = hashed.scan_files(TABLE).files
    assert sorted(file.is_read_by_id for file in files) == [False, False, False, True]
    assert not any(file.is_read_by_id for file in files if file.path in ("data/added.parquet", "data/renamed.parquet"))
    assert not any(file.is_own for file in files)
    load(hashed, "own", TABLE, [1])
    assert sum(file.is_own for file in hashed.scan_files(TABLE).files) == 1


@pytest.mark.parametrize(
    ("columns", "finding"),
    [
        ({"a": 1, "z": 1}, r"added\.parquet has no field ids, and its column z has none .* are a, b x, c;"),
        ({"A": 1}, "its column A has none of the names"),
        ({"b_x20x": 1}, "its column b_x20x has none of the names"),
    ],
)
def test_a_file_without_ids_and_with_another_column_is_refused(
    hashed: Catalog, catalog_url: str, columns: dict[str, int], finding: str
) -> None:
    path = write(hashed, "data/added.parquet", **columns)
    commit_file(catalog_url, path, path.stat().st_size)
    refuse(hashed, finding)


def test_a_file_with_two_columns_of_one_field_is_refused(hashed: Catalog, catalog_url: str) -> None:
    hashed.alter_table(TABLE, change_columns={"a": ("d", "int")})
    path = write(hashed, "data/added.parquet", a=1, d=2, c=3)
    commit_file(catalog_url, path, path.stat().st_size)
    refuse(hashed, "has one column of the table more than once, as a, d; readers disagree")


def test_a_file_without_ids_is_refused_if_its_name_has_another_meaning_for_iceberg(
    hashed: Catalog, catalog_url: str
) -> None:
    load(hashed, "own", TABLE, [1])
    path = write(hashed, a=1, c=2)

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.delete_column("a")
        with table.update_schema() as update:
            update.add_column("a", IntegerType())
        table.add_files([str(path)])

    engine(catalog_url, commit)
    refuse(hashed, "its column a has none of the names")


NESTED: dict[str, tuple[str, Callable[[Any], Any], tuple[str, ...]]] = {
    "struct": ("struct<x:int>", lambda row: row, ("n",)),
    "list": ("array<struct<x:int>>", lambda row: [row], ("n", "element")),
    "map": ("map<string,struct<x:int>>", lambda row: [("k", row)], ("n", "value")),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("has_other", [False, True], ids=["renamed", "dropped"])
def test_a_file_whose_fields_inside_of_a_column_have_other_names_or_ids_is_refused(
    catalog: Catalog, catalog_url: str, kind: str, has_other: bool
) -> None:
    column_type, value_of, path = NESTED[kind]
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("n", column_type), ("c", "int")], scheme=scheme)

    def append(table: IcebergTable, **row: int) -> None:
        schema = table.schema().as_arrow()
        table.append(pa.Table.from_pylist([{"n": value_of(row), "c": 1}], schema=schema))

    def commit(table: IcebergTable) -> None:
        x, y = (*path, "x"), (*path, "y")
        with table.update_schema() as update:
            update.add_column(y, IntegerType()) if has_other else update.rename_column(x, "y")
        append(table, y=2)
        with table.update_schema() as update:
            update.delete_column(y) if has_other else update.rename_column(y, "x")

    engine(catalog_url, lambda table: append(table, x=1))
    catalog.alter_table(TABLE, properties={"team": "a"})
    assert len(catalog.scan_files(TABLE).files) == 1
    engine(catalog_url, commit)
    refuse(catalog, rf"has the field {re.escape('.'.join((*path, 'y')))}, which is not in the table under this name")
    catalog.roll_backs.to_snapshot(TABLE, published_snapshots(catalog.get_table(TABLE)).current_id or 0)
    catalog.alter_table(TABLE, properties={"team": "b"})


def test_a_change_of_fields_inside_of_a_column_is_refused(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("n", "struct<x:int,y:int>"), ("c", "int")], scheme=scheme)

    def commit(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.delete_column(("n", "x"))

    engine(catalog_url, commit)
    refuse(catalog, "fields inside of column n were changed: .* can also be dropped by its engine")

    def drop(table: IcebergTable) -> None:
        with table.update_schema() as update:
            update.delete_column("n")

    engine(catalog_url, drop)
    catalog.alter_table(TABLE, properties={"team": "a"})
    assert [column.name for column in catalog.get_table(TABLE).columns] == ["c"]


def test_a_file_that_does_not_exist_or_is_damaged_is_refused(hashed: Catalog, catalog_url: str) -> None:
    location = hashed.get_table(TABLE).location
    commit_file(catalog_url, f"{location}/data/gone.parquet", 100)
    refuse(hashed, r"gone\.parquet does not exist")
    path = write(hashed, "data/gone.parquet", a=1)
    path.write_bytes(b"PAR1" + bytes(96))
    refuse(hashed, r"gone\.parquet: it starts like a Parquet file")


def test_a_file_without_a_partition_key_is_refused(catalog: Catalog, catalog_url: str) -> None:
    catalog.create_table(TABLE, columns=[("a", "int")], partition_keys=[("k", "int")], format="iceberg")
    path = write(catalog, a=1)
    commit_file(catalog_url, path, path.stat().st_size, 7)
    refuse(catalog, r"added\.parquet lacks the partition key k")


@pytest.mark.first_case
@pytest.mark.parametrize("are_together", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_file_that_is_listed_twice_is_refused(
    hashed: Catalog, catalog_url: str, are_together: bool, is_known: bool
) -> None:
    load(hashed, "own", TABLE, [1])
    before = published_snapshots(hashed.get_table(TABLE)).current_id
    assert before is not None
    path = write(hashed, a=1, c=2)
    engine(catalog_url, lambda table: table.add_files([str(path)]))
    if is_known:
        assert len(hashed.scan_files(TABLE).files) == 2
    # What an engine does with the other file makes no difference.
    paths = [str(path), str(write(hashed, "data/other.parquet", a=1, c=2))]
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table(TABLE)
        for added in [paths] if are_together else [[one] for one in paths]:
            table.add_files(added, check_duplicate_files=False)
    refuse(hashed, r"the snapshot has the data file .*added\.parquet more than once")
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).scan(row_filter="a = 1").to_arrow().num_rows == 3
    hashed.roll_backs.to_snapshot(TABLE, before)
    load(hashed, "again", TABLE, [3])
    check_published(hashed, TABLE)


def test_a_file_whose_path_is_spelled_otherwise_is_refused(hashed: Catalog, catalog_url: str) -> None:
    path = write(hashed, a=1, c=2)
    # Spark's `add_files` gives such a path to a file on a disk.
    commit_file(catalog_url, f"file:{path}", path.stat().st_size)
    refuse(hashed, re.escape(f"file:{path} does not start with {hashed.get_table(TABLE).location}, as others do"))


@pytest.mark.parametrize("way", ["../other/", "data/./", "data//", "data/../../"])
def test_a_file_whose_path_may_lead_out_of_the_folder_is_refused(hashed: Catalog, catalog_url: str, way: str) -> None:
    location = hashed.get_table(TABLE).location
    path = write(hashed, f"{way}added.parquet", a=1, c=2)
    commit_file(catalog_url, f"{location}/{way}added.parquet", path.stat().st_size)
    refuse(hashed, re.escape(f"{location}/{way}added.parquet is outside the table's folder"))


@pytest.mark.parametrize(("name", "size"), [("a\0b", 1), ("a", -1)])
def test_a_file_with_a_path_or_size_that_no_file_can_have_is_refused(
    hashed: Catalog, catalog_url: str, name: str, size: int
) -> None:
    commit_file(catalog_url, f"{hashed.get_table(TABLE).location}/data/{name}", size)
    refuse(hashed, "a path or a size that no file can have")


def test_vacuum_deletes_no_former_file_behind_a_link(hashed: Catalog, catalog_url: str, tmp_path: Path) -> None:
    path = write(hashed, "data/sub/added.parquet", a=1, c=2)
    commit_file(catalog_url, path, path.stat().st_size)
    assert [file.row_count for file in hashed.scan_files(TABLE).files] == [1]
    engine(catalog_url, lambda table: table.delete())
    assert not hashed.scan_files(TABLE).files
    path.parent.rename(tmp_path / "outside")
    path.parent.symlink_to(tmp_path / "outside")
    [problem] = hashed.vacuum(grace=timedelta(0)).problems
    assert "sub/added.parquet: a link leads out of the table's folder" in problem
    assert (tmp_path / "outside" / "added.parquet").exists()


@pytest.mark.parametrize("name", ["link", "l%61nk"])
def test_a_file_in_a_linked_folder_is_refused_and_stays(
    hashed: Catalog, catalog_url: str, tmp_path: Path, name: str
) -> None:
    load(hashed, "own", TABLE, [1])
    data, outside = Path(hashed.get_table(TABLE).location, "data"), tmp_path / "outside"
    data.mkdir()
    outside.mkdir()
    (data / name).symlink_to(outside)
    path = write(hashed, f"data/{name}/added.parquet", a=1, c=2)
    before = published_snapshots(hashed.get_table(TABLE)).current_id
    assert before is not None
    commit_file(catalog_url, path, path.stat().st_size)
    refuse(hashed, f"{name}/added.parquet is outside the table's folder, .*: a link leads there")
    hashed.roll_backs.to_snapshot(TABLE, before)
    hashed.vacuum(grace=timedelta(0))
    assert (outside / "added.parquet").exists()


def test_a_name_mapping_that_is_none_is_refused_and_replaced(hashed: Catalog, catalog_url: str) -> None:
    load(hashed, "own", TABLE, [1])
    before = published_snapshots(hashed.get_table(TABLE)).current_id
    assert before is not None
    values = pa.array([3], pa.int32())
    engine(catalog_url, lambda table: table.append(pa.table({"a": values, "c": values})))

    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": "oops"})

    engine(catalog_url, commit)
    refuse(hashed, r"the property schema\.name-mapping\.default is not a name mapping of Iceberg: oops")
    hashed.vacuum(grace=timedelta(0))
    hashed.roll_backs.to_snapshot(TABLE, before)
    hashed.alter_table(TABLE, properties={"owner": "ann"})
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).properties["schema.name-mapping.default"].startswith("[")


def test_a_name_mapping_that_is_none_is_replaced_where_nothing_depends_on_it(hashed: Catalog, catalog_url: str) -> None:
    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": "oops"})

    engine(catalog_url, commit)
    assert not hashed.scan_files(TABLE).files
    with sql_catalog(catalog_url) as iceberg:
        assert iceberg.load_table(TABLE).properties["schema.name-mapping.default"].startswith("[")


def test_metadata_whose_snapshots_are_their_own_ancestors_end(hashed: Catalog, catalog_url: str) -> None:
    load(hashed, "own", TABLE, [1])
    with sql_catalog(catalog_url) as iceberg:
        metadata = iceberg.load_table(TABLE).metadata
    (snapshot,) = metadata.snapshots
    cyclic = snapshot.model_copy(update={"parent_snapshot_id": snapshot.snapshot_id})
    assert lineage(metadata.model_copy(update={"snapshots": [cyclic]})) == [cyclic]


def test_messages_about_paths_have_no_credentials(hashed: Catalog, catalog_url: str) -> None:
    commit_file(catalog_url, "s3://KEY:hunter2@bucket/t/added.parquet", 1)
    with pytest.raises(UnsupportedCommitError, match="outside the table's folder") as refused:
        hashed.alter_table(TABLE, properties={"owner": "ann"})
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in str(UnreadableFileError("s3://KEY:hunter2@b/m", "no s3://KEY:hunter2@b/m"))


def test_a_property_that_the_catalog_cannot_have_is_refused(hashed: Catalog, catalog_url: str) -> None:
    def commit(table: IcebergTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"write.data.path": "s3://KEY:hunter2@bucket/t"})

    engine(catalog_url, commit)
    refuse(hashed, r"its properties are now write\.data\.path: .*Change the property, or the comment, by its engine")
    assert hashed.scan_files(TABLE).files == ()

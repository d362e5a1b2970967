"""Attributes of Hive tables besides columns and keys: comments, kinds, views, buckets, formats; and purges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from catalog import Catalog, FileFormat, NewPartition
from catalog.errors import (
    CatalogError,
    ConflictError,
    FilesNotDeletedError,
    FolderBeingPurgedError,
    InvalidIdentifierError,
    InvalidTableError,
    LocationInUseError,
    NotATableError,
    TableAlreadyExistsError,
    UnsupportedChangeError,
    UnsupportedFormatError,
)
from catalog.maintenance.compaction import require_compacted
from catalog.model import READABLE_FORMATS, Buckets, TableKind
from catalog.operations.records import OperationKind, OperationState
from catalog.storage.schema import PurgedFolderRow, TableRow
from catalog.storage.upgrade import downgrade, upgrade
from catalog.tables import purging
from catalog.tables.checks import require_loadable, require_readable_format, require_value_rows
from catalog.tables.own_files import PurgedFiles, _Deletion
from tests.support.written_files import own_name

COLUMNS = [("a", "int"), ("b", "string")]


def file_in(catalog: Catalog, folder: Path | str) -> Path:
    path = Path(folder) / own_name(catalog)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    return path


def test_what_was_said_of_a_table_comes_back(catalog: Catalog) -> None:
    created = catalog.create_table(
        "demo.t", columns=COLUMNS, description="what it is", is_external=True, buckets=Buckets(("A",), 8)
    )
    assert created == catalog.get_table("demo.t") == catalog.list_tables("demo")[0]
    assert (created.description, created.kind, created.buckets) == (
        "what it is",
        TableKind.EXTERNAL,
        Buckets(("a",), 8),
    )
    plain = catalog.create_table("demo.plain", columns=COLUMNS)
    assert (plain.description, plain.kind, plain.buckets, plain.is_view) == (None, TableKind.MANAGED, None, False)


def test_a_description_changes_and_buckets_follow_a_renamed_column(catalog: Catalog) -> None:
    catalog.create_table("demo.t", columns=COLUMNS, description="old", buckets=Buckets(("b", "a"), 2))
    changed = catalog.alter_table("demo.t", change_columns={"b": ("c", "string")}, description="new")
    assert (changed.description, changed.buckets) == ("new", Buckets(("c", "a"), 2))
    assert catalog.alter_table("demo.t", properties={"x": "1"}).description == "new"


@pytest.mark.parametrize("is_of_spark", [False, True])
def test_tables_with_buckets_are_read_and_not_written(catalog: Catalog, is_of_spark: bool) -> None:
    properties = {"spark.sql.sources.schema.numBuckets": "2"} if is_of_spark else {}
    buckets = None if is_of_spark else Buckets(("a",), 2)
    keys = [("k", "int")]
    table = catalog.create_table("demo.t", columns=COLUMNS, partition_keys=keys, buckets=buckets, properties=properties)
    require_readable_format(table)
    for check in (require_loadable, require_value_rows):
        with pytest.raises(UnsupportedChangeError, match=r"table demo\.t has 2 buckets.*CREATE TABLE … AS SELECT"):
            check(table)
    with pytest.raises(UnsupportedChangeError, match="has buckets, which Calve does not write; compaction"):
        require_compacted(table)


@pytest.mark.parametrize(
    ("buckets", "named"),
    [
        (Buckets(("k",), 2), "by k, but its columns are"),
        (Buckets((), 2), "2 buckets"),
        (Buckets(("a",), 0), "0 buckets"),
    ],
)
def test_buckets_that_cannot_be_are_refused(catalog: Catalog, buckets: Buckets, named: str) -> None:
    with pytest.raises(InvalidTableError, match=named):
        catalog.create_table("demo.t", columns=COLUMNS, partition_keys=[("k", "int")], buckets=buckets)
    assert catalog.list_tables() == []


@pytest.mark.parametrize(
    ("text", "known"),
    [("TextFile", "textfile"), ("SEQUENCEFILE", "sequencefile"), ("json", "jsonfile"), ("ORC", "orc")],
)
def test_formats_of_hive_are_recorded_as_they_are(catalog: Catalog, text: str, known: str) -> None:
    table = catalog.create_table("demo.t", columns=COLUMNS, format=text)
    assert table.format == known
    if table.format not in READABLE_FORMATS:
        with pytest.raises(UnsupportedFormatError, match=f"stored as {known.upper()}.*PARQUET, ORC, AVRO, CSV"):
            require_readable_format(table)
    require_readable_format(table, FileFormat.ORC)


def test_a_format_that_nobody_knows_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidTableError, match="unknown format 'kudu'"):
        catalog.create_table("demo.t", columns=COLUMNS, format="kudu")


# --- views ----------------------------------------------------------------------------------------------------------


def test_a_view_is_listed_among_the_tables(catalog: Catalog) -> None:
    catalog.create_table("demo.t", columns=COLUMNS)
    view = catalog.create_view("Demo.V", "SELECT a FROM demo.t", columns=[("A", "int")], description="less")
    assert [(each.name, each.kind) for each in catalog.list_tables("demo")] == [
        ("t", TableKind.MANAGED),
        ("v", TableKind.VIEW),
    ]
    assert catalog.get_table("demo.v") == view
    assert (view.view_text, view.description, view.location, view.key_names) == ("SELECT a FROM demo.t", "less", "", ())
    assert [column.name for column in view.columns] == ["a"]
    assert list(catalog.get_partitions("demo.v")) == []


def test_a_views_name_is_one_of_the_tables(catalog: Catalog) -> None:
    view = catalog.create_view("demo.v", "SELECT 1")
    with pytest.raises(TableAlreadyExistsError, match=r"demo\.v"):
        catalog.create_view("demo.V", "SELECT 2")
    with pytest.raises(TableAlreadyExistsError, match=r"demo\.v"):
        catalog.create_table("demo.v", columns=COLUMNS)
    assert catalog.create_view("demo.v", "SELECT 2", if_not_exists=True) == view
    with pytest.raises(InvalidTableError, match="more than once"):
        catalog.create_view("demo.w", "SELECT 1", columns=[("a", "int"), ("A", "int")])
    with pytest.raises(InvalidIdentifierError):
        catalog.create_view("demo.w", "SELECT 1", columns=[("a/b", "int")])


def test_of_a_view_name_properties_and_description_change(catalog: Catalog) -> None:
    catalog.create_view("demo.v", "SELECT 1")
    changed = catalog.alter_table("demo.v", rename_to="w", properties={"x": "1"}, description="new")
    assert (changed.name, changed.properties, changed.description) == ("w", {"x": "1"}, "new")
    catalog.drop_table("demo.w", purge=True)
    assert catalog.list_tables() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.alter_table("demo.v", add_columns=[("x", "int")]),
        lambda catalog: catalog.alter_table("demo.v", change_columns={"a": ("x", "int")}),
        lambda catalog: catalog.alter_table("demo.v", key_order=[]),
        lambda catalog: catalog.alter_table("demo.v", location="/x"),
        lambda catalog: catalog.add_partitions("demo.v", [NewPartition(["1"])]),
    ],
)
def test_what_only_tables_can_do_is_refused(catalog: Catalog, call: object) -> None:
    view = catalog.create_view("demo.v", "SELECT 1", columns=[("a", "int")])
    with pytest.raises(NotATableError, match=r"demo\.v is a view"):
        call(catalog)  # type: ignore[operator]
    assert catalog.get_table("demo.v") == view


def test_going_down_loses_views_and_no_table(catalog: Catalog) -> None:
    catalog.create_view("demo.v", "SELECT 1")
    catalog.create_table("demo.t", columns=COLUMNS, description="lost")
    downgrade(catalog.storage, "0005")
    upgrade(catalog.storage)
    [table] = catalog.list_tables()
    assert (table.name, table.kind, table.description) == ("t", TableKind.MANAGED, None)


# --- purging --------------------------------------------------------------------------------------------------------


def test_files_go_only_when_a_managed_table_is_purged(catalog: Catalog, tmp_path: Path) -> None:
    for name, is_external in (("kept", False), ("external", True), ("purged", False)):
        table = catalog.create_table(
            f"demo.{name}", columns=COLUMNS, partition_keys=[("k", "int")], is_external=is_external
        )
        file_in(catalog, f"{table.location}/k=1")
        file_in(catalog, f"{tmp_path}/elsewhere/{name}")
        elsewhere = NewPartition(["2"], location=f"{tmp_path}/elsewhere/{name}")
        catalog.add_partitions(f"demo.{name}", [NewPartition(["1"]), elsewhere])
        catalog.drop_table(f"demo.{name}", purge=name != "kept")
    assert catalog.list_tables() == []
    warehouse = tmp_path / "warehouse" / "demo"
    assert sorted(path.name for path in warehouse.iterdir()) == ["external", "kept"]
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["external", "kept", "purged"]
    [operation] = catalog.operations.list()
    assert (operation.kind, operation.table, operation.state) == (
        OperationKind.DROP_TABLE,
        "demo.purged",
        OperationState.CLEANED,
    )


@pytest.mark.usefixtures("overlapping_locations")
def test_a_purge_leaves_what_other_tables_have_in_the_folder(catalog: Catalog, tmp_path: Path) -> None:
    root = tmp_path / "lake" / "a%_"
    catalog.create_table("demo.t", columns=COLUMNS, location=f"file://{root}/")
    mine, hidden = file_in(catalog, root / "x"), file_in(catalog, root / "_calve_staging")
    inner, deep = file_in(catalog, root / "inner"), file_in(catalog, root / "k=1" / "of_others")
    beside = file_in(catalog, f"{root}b")
    catalog.create_table("demo.inner", columns=COLUMNS, location=str(root / "inner"))
    catalog.create_table("demo.other", columns=COLUMNS, partition_keys=[("k", "int")])
    catalog.add_partitions("demo.other", [NewPartition(["1"], location=str(deep.parent))])
    catalog.drop_table("demo.t", purge=True)
    assert [path.exists() for path in (mine, hidden, inner, deep, beside)] == [False, False, True, True, True]
    assert sorted(path.name for path in root.iterdir()) == ["inner", "k=1"]


@pytest.mark.usefixtures("overlapping_locations")
@pytest.mark.parametrize("is_partition", [False, True])
def test_a_purge_deletes_nothing_in_the_folder_of_another_table(
    catalog: Catalog, tmp_path: Path, is_partition: bool
) -> None:
    catalog.create_table("demo.t", columns=COLUMNS, location=str(tmp_path / "lake" / "inner"))
    file = file_in(catalog, tmp_path / "lake" / "inner")
    if is_partition:
        catalog.create_table("demo.around", columns=COLUMNS, partition_keys=[("k", "int")])
        catalog.add_partitions("demo.around", [NewPartition(["1"], location=f"file:{tmp_path}/lake")])
    else:
        catalog.create_table("demo.around", columns=COLUMNS, location=str(tmp_path / "lake"))
    catalog.drop_table("demo.t", purge=True)
    assert file.exists()


def test_a_file_of_others_that_arrives_while_a_table_is_purged_stays(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("demo.t", columns=COLUMNS, partition_keys=[("k", "int")])
    mine = [file_in(catalog, f"{table.location}/k={number}") for number in range(2)]
    arriving = Path(table.location, "k=9", "part-00000-of-others.parquet")
    clear = _Deletion._delete_empty

    def clear_late(self: _Deletion, names: Iterable[str], staying: set[str]) -> None:
        arriving.parent.mkdir()
        arriving.write_text("theirs")
        clear(self, names, staying)

    monkeypatch.setattr(_Deletion, "_delete_empty", clear_late)
    catalog.drop_table("demo.t", purge=True)
    assert arriving.read_text() == "theirs"
    assert not any(path.parent.exists() for path in mine)


def test_an_interrupted_purge_is_finished_later(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_in(catalog, catalog.create_table("demo.t", columns=COLUMNS).location)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("catalog.tables.dropping.finish_drop", stop)
        with pytest.raises(KeyboardInterrupt):
            catalog.drop_table("demo.t", purge=True)
    assert catalog.list_tables() == []
    assert file.exists()
    assert (catalog.finish_drops(), catalog.finish_drops()) == (1, 0)
    assert not file.parent.exists()


NEWCOMERS: dict[str, Callable[[Catalog, str], object]] = {
    "onto": lambda catalog, root: catalog.create_table("demo.new", columns=COLUMNS, location=root),
    "into": lambda catalog, root: catalog.create_table("demo.new", columns=COLUMNS, location=f"file:{root}/k=1"),
    "around": lambda catalog, root: catalog.create_table("demo.new", columns=COLUMNS, location=f"{root}/.."),
    "moved": lambda catalog, root: catalog.alter_table("demo.moved", location=f"{root}/"),
    "partition": lambda catalog, root: catalog.add_partitions("demo.by", [NewPartition(["9"], location=f"{root}/k=1")]),
    "moved partition": lambda catalog, root: catalog.alter_partition("demo.by", ["1"], location=f"{root}/k=1"),
}


@pytest.mark.parametrize("come", NEWCOMERS.values(), ids=NEWCOMERS)
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_no_table_and_no_partition_comes_to_a_folder_before_its_purge_has_ended(
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    come: Callable[[Catalog, str], object],
    is_interrupted: bool,
) -> None:
    root = f"{tmp_path}/lake/t"
    catalog.create_table("demo.t", columns=COLUMNS, partition_keys=[("k", "int")], location=root)
    catalog.create_table("demo.by", columns=COLUMNS, partition_keys=[("k", "int")])
    catalog.add_partitions("demo.by", [NewPartition(["1"])])
    catalog.create_table("demo.moved", columns=COLUMNS)
    file = file_in(catalog, f"{root}/k=1")
    delete, refused = purging.delete_own_files, list[str]()

    def refuse_and_delete(location: str, *arguments: Any, **options: Any) -> PurgedFiles:
        with pytest.raises(FolderBeingPurgedError, match=r"run `calve vacuum`") as error:
            come(catalog, root)
        refused.append(error.value.operation)
        if is_interrupted and len(refused) == 1:
            raise KeyboardInterrupt
        return delete(location, *arguments, **options)

    monkeypatch.setattr(purging, "delete_own_files", refuse_and_delete)
    if is_interrupted:
        with pytest.raises(KeyboardInterrupt):
            catalog.drop_table("demo.t", purge=True)
        with pytest.raises(LocationInUseError, match=refused[0]):
            come(catalog, root)
        assert catalog.vacuum().purged == ("demo.t",)
    else:
        catalog.drop_table("demo.t", purge=True)
    assert not file.exists()
    come(catalog, root)
    with catalog.storage.read() as connection:
        assert connection.scalars(select(PurgedFolderRow.location)).all() == []


def test_a_purge_that_another_process_has_finished_deletes_nothing_of_the_next_table(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = catalog.create_table("demo.t", columns=COLUMNS, partition_keys=[("k", "int")]).location
    file_in(catalog, f"{root}/k=1")
    delete, files = purging.delete_own_files, list[Path]()

    def delete_late(location: str, *arguments: Any, **options: Any) -> PurgedFiles:
        if not files:
            files.append(Path())
            assert catalog.vacuum().purged == ("demo.t",)
            catalog.create_table("demo.t", columns=COLUMNS, partition_keys=[("k", "int")])
            files.append(file_in(catalog, f"{root}/k=1"))
        return delete(location, *arguments, **options)

    monkeypatch.setattr(purging, "delete_own_files", delete_late)
    catalog.drop_table("demo.t", purge=True)
    assert files[1].exists()


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_purge_of_an_earlier_version_goes_on_unless_a_table_is_there(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    file = file_in(catalog, catalog.create_table("demo.t", columns=COLUMNS).location)
    with monkeypatch.context() as patched:
        patched.setattr("catalog.tables.dropping.finish_drop", lambda *_: None)
        catalog.drop_table("demo.t", purge=True)
    with catalog.storage.write() as connection:
        connection.execute(delete(PurgedFolderRow))
    if is_taken:
        catalog.create_table("demo.t", columns=COLUMNS)
    assert catalog.finish_drops() == 1
    assert file.exists() is is_taken


def test_the_purge_of_a_folder_that_is_a_link_ends(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    location = tmp_path / "link"
    location.symlink_to(tmp_path / "disk")
    file = file_in(catalog, catalog.create_table("demo.t", columns=COLUMNS, location=str(location)).location)
    catalog.drop_table("demo.t", purge=True)
    assert not file.exists()
    assert catalog.finish_drops() == 0
    catalog.create_table("demo.t", columns=COLUMNS, location=str(location))


def test_files_that_cannot_be_deleted_are_named(catalog: Catalog) -> None:
    table = catalog.create_table("demo.t", columns=COLUMNS)
    # As a folder of a file system that this version of PyArrow does not know.
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).where(TableRow.id == table.id).values(location="nowhere://host/t"))
    with pytest.raises(CatalogError, match="nowhere://host/t"):
        catalog.drop_table("demo.t", purge=True)
    assert catalog.list_tables() == []


def test_a_busy_table_is_not_purged(catalog: Catalog) -> None:
    file = file_in(catalog, catalog.create_table("demo.t", columns=COLUMNS).location)
    catalog.operations.begin("load", OperationKind.ADD_PARTITIONS, "demo.t", is_exclusive=True)
    catalog.operations.start_job("load", "write")
    with pytest.raises(ConflictError, match="operation load"):
        catalog.drop_table("demo.t", purge=True)
    assert file.exists()
    assert FilesNotDeletedError.retryable is False

"""Changes of columns and partition keys, with and without partitions and indexes, on each database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from catalog import Catalog, Column, NewPartition, Table
from catalog.errors import (
    CatalogError,
    ConflictError,
    IndexedKeyError,
    InvalidIdentifierError,
    InvalidKeyTypeError,
    InvalidRequestError,
    InvalidTableError,
    LocationTakenError,
    PartitionAlreadyExistsError,
    UnsupportedChangeError,
)
from catalog.operations.records import OperationKind
from tests.support.index_items import assert_every_partition_has_its_item

TABLE = "demo.t"


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table `demo.t` with the column v and the keys (s string, n int, t tinyint), empty."""
    keys = [("s", "string"), ("n", "int"), ("t", "tinyint")]
    return catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys)


def add(catalog: Catalog, *rows: tuple[str | None, ...]) -> None:
    catalog.add_partitions(TABLE, [NewPartition(row) for row in rows])


def locations(catalog: Catalog) -> list[str]:
    return sorted(partition.location for partition in catalog.get_partitions(TABLE))


def test_columns_and_keys_take_a_new_name_type_and_comment(catalog: Catalog, table: Table) -> None:
    changed = catalog.alter_table(
        TABLE, change_columns={"V": ("W", "bigint"), "n": Column("number", "STRING", "what it is"), "t": ("t", "int")}
    )
    assert changed.columns == (Column("w", "bigint"),)
    assert changed.partition_keys == (
        Column("s", "string"),
        Column("number", "string", "what it is"),
        Column("t", "int"),
    )
    assert catalog.get_table(TABLE) == changed


def test_two_keys_may_exchange_their_names(catalog: Catalog, table: Table) -> None:
    changed = catalog.alter_table(TABLE, change_columns={"n": ("t", "int"), "t": ("n", "tinyint")})
    assert changed.key_names == ("s", "t", "n")


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"change_columns": {"gone": ("x", "int")}}, InvalidTableError, "no column gone; it has n, s, t, v"),
        ({"change_columns": {"v": ("s", "int")}}, InvalidTableError, "names s more than once"),
        ({"change_columns": {"v": ("a/b", "int")}}, InvalidIdentifierError, "'a/b'"),
        ({"change_columns": {"n": ("n", "binary")}}, InvalidKeyTypeError, "'binary'"),
        ({"key_order": ["n", "s"]}, InvalidTableError, r"\(n, s\).* each of s, n, t once"),
        ({"key_order": ["n", "s", "t", "t"]}, InvalidTableError, "once"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    catalog: Catalog, table: Table, change: dict[str, object], error: type[CatalogError], named: str
) -> None:
    with pytest.raises(error, match=named):
        catalog.alter_table(TABLE, add_columns=[("new", "int")], **change)  # type: ignore[arg-type]
    assert catalog.get_table(TABLE) == table


@pytest.mark.parametrize(
    "change",
    [
        {"properties": {"calve.source": "hms://host:9083/sales.orders"}},
        {"rename_to": "a/b"},
        {"add_columns": [("a/b", "int")]},
        {"add_columns": [("a", "no type")]},
        {"change_columns": {"v": ("a/b", "int")}},
        {"drop_columns": ["a/b"]},
        {"location": " "},
    ],
)
def test_a_change_that_fits_no_table_is_refused_before_a_transaction_starts(
    catalog: Catalog, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(type(catalog.storage), "write")
    with pytest.raises(InvalidRequestError):
        catalog.alter_table("demo.gone", **change)  # type: ignore[arg-type]


def test_a_table_on_which_an_operation_works_keeps_its_columns(catalog: Catalog, table: Table) -> None:
    catalog.operations.begin("load", OperationKind.ADD_PARTITIONS, TABLE, is_exclusive=True)
    catalog.operations.start_job("load", "write")
    with pytest.raises(ConflictError, match="operation load"):
        catalog.alter_table(TABLE, change_columns={"n": ("m", "int")})


# --- with partitions ------------------------------------------------------------------------------------------------


def test_a_renamed_key_leaves_the_folders_where_they_are(catalog: Catalog, table: Table) -> None:
    add(catalog, ("a/b", "1", "2"), (None, None, "3"))
    catalog.add_partitions(TABLE, [NewPartition(("c",), location="/elsewhere")])
    before = locations(catalog)
    catalog.alter_table(TABLE, change_columns={"s": ("text", "string"), "n": ("number", "int")})
    assert locations(catalog) == before
    assert [each.values for each in catalog.get_partitions(TABLE, "text = 'a/b' and number = 1")] == [("a/b", "1", "2")]
    add(catalog, ("new", "1", "1"))
    assert f"{table.location}/text=new/number=1/t=1" in locations(catalog)


def test_a_key_that_gets_its_name_back_leaves_default_folders_to_their_partitions(
    catalog: Catalog, table: Table
) -> None:
    add(catalog, ("a", "1", "2"))
    before = locations(catalog)
    for old, new in (("s", "text"), ("text", "s")):
        catalog.alter_table(TABLE, change_columns={old: (new, "string")})
    assert locations(catalog) == before
    for inside in ("", "/in"):
        with pytest.raises(LocationTakenError):
            catalog.add_partitions(TABLE, [NewPartition(("b", "1", "2"), f"{table.location}/s=a/n=1/t=2{inside}")])


@pytest.mark.parametrize(
    ("key", "new_type", "values"),
    [
        ("t", "smallint", ("a", "1", "-128")),
        ("t", "bigint", ("a", "1", "007")),
        ("n", "tinyint", ("a", "127", "1")),
        ("s", "varchar(3)", ("abc", "1", "1")),
        ("s", "varchar(3)", (None, "1", "1")),
    ],
)
def test_a_type_changes_when_all_values_stay_the_same(
    catalog: Catalog, table: Table, key: str, new_type: str, values: tuple[str | None, ...]
) -> None:
    add(catalog, values)
    catalog.alter_table(TABLE, change_columns={key: (key, new_type)})
    assert catalog.get_partition(TABLE, values).values == values
    with pytest.raises(PartitionAlreadyExistsError):
        add(catalog, values)
    catalog.create_partition_index(TABLE, "i", [key])
    catalog.build_partition_index(TABLE, "i")
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.parametrize(
    ("key", "new_type", "value"),
    [
        ("s", "varchar(3)", "'abcd'"),
        ("s", "int", "'1'"),
        ("s", "char(9)", "'a '"),
        ("n", "tinyint", "'128'"),
        ("n", "string", "'01'"),
        # Until now a string that is no tinyint, from now on a number.
        ("t", "int", "'300'"),
    ],
)
@pytest.mark.usefixtures("unfit_values")
def test_a_type_does_not_change_when_a_value_would(
    catalog: Catalog, table: Table, key: str, new_type: str, value: str
) -> None:
    row = {"s": "a", "n": "1", "t": "1", key: value.strip("'")}
    add(catalog, tuple(row.values()))
    with pytest.raises(InvalidTableError, match=f"key {key} cannot become .*{value}.*Drop their partitions"):
        catalog.alter_table(TABLE, change_columns={key: (key, new_type)})
    assert catalog.get_table(TABLE) == table


def test_the_order_of_keys_changes_only_while_there_are_no_partitions(catalog: Catalog, table: Table) -> None:
    assert catalog.alter_table(TABLE, key_order=["N", "s", "t"]).key_names == ("n", "s", "t")
    add(catalog, ("1", "a", "1"))
    with pytest.raises(InvalidTableError, match="folders follow the order"):
        catalog.alter_table(TABLE, key_order=["s", "n", "t"])
    assert catalog.alter_table(TABLE, key_order=["n", "s", "t"]).key_names == ("n", "s", "t")


# --- names in files ---------------------------------------------------------------------------------------------------

FOUND_BY_NAME = ("parquet", "orc", "avro")


def make_notes(catalog: Catalog, file_format: str, keys: Sequence[tuple[str, str]] = (("k", "int"),)) -> Table:
    columns = [("n", "int"), ("note", "string")]
    return catalog.create_table(TABLE, columns=columns, partition_keys=keys, format=file_format)


@pytest.mark.parametrize("file_format", FOUND_BY_NAME)
def test_columns_in_files_that_engines_find_by_name_keep_their_names(catalog: Catalog, file_format: str) -> None:
    make_notes(catalog, file_format)
    add(catalog, ("1",))
    migration = r"CALL iceberg\.system\.migrate\(schema_name => 'demo', table_name => 't'\)"
    for change in ({"note": ("remark", "string")}, {"note": ("n", "string"), "n": ("note", "int")}):
        with pytest.raises(UnsupportedChangeError, match=f"cannot become .* old name.*{migration}"):
            catalog.alter_table(TABLE, change_columns=change)
    catalog.alter_table(TABLE, drop_columns=["note"], change_columns={"n": ("n", "bigint")})
    with pytest.raises(UnsupportedChangeError, match=f"column note cannot be added again.*{migration}"):
        catalog.alter_table(TABLE, add_columns=[("note", "string")])
    after = catalog.alter_table(TABLE, add_columns=[("remark", "string")], column_order=["remark", "n"])
    assert [(column.name, column.stored_names) for column in after.columns] == [("remark", ("remark",)), ("n", ("n",))]


def test_columns_that_engines_find_by_position_change_their_names(catalog: Catalog) -> None:
    make_notes(catalog, "csv")
    add(catalog, ("1",))
    after = catalog.alter_table(TABLE, change_columns={"note": ("remark", "string")})
    assert after.columns[1].name == "remark"


@pytest.mark.parametrize("keys", [(), [("k", "int")]], ids=["without keys", "with keys"])
@pytest.mark.parametrize("file_format", FOUND_BY_NAME)
def test_a_table_without_files_forgets_former_names(
    catalog: Catalog, file_format: str, keys: Sequence[tuple[str, str]]
) -> None:
    table = make_notes(catalog, file_format, keys)
    catalog.alter_table(TABLE, change_columns={"note": ("n", "string"), "n": ("note", "int")})
    catalog.alter_table(TABLE, drop_columns=["note"])
    after = catalog.alter_table(TABLE, add_columns=[("note", "date")])
    assert [(column.name, column.stored_names) for column in after.columns] == [("n", ("n",)), ("note", ("note",))]
    assert (after.dropped_columns, after.last_column_id) == ((), table.last_column_id + 1)


def test_the_files_of_a_table_without_keys_are_looked_for(catalog: Catalog) -> None:
    table = make_notes(catalog, "parquet", ())
    (Path(table.location) / "inside").mkdir(parents=True)
    (Path(table.location) / "inside" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(UnsupportedChangeError, match="column note cannot become remark"):
        catalog.alter_table(TABLE, change_columns={"note": ("remark", "string")})


# --- with an index --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_built", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"change_columns": {"n": ("m", "int")}}, "partition key n cannot become m"),
        ({"change_columns": {"t": ("u", "tinyint")}}, "partition key t cannot become u"),
        ({"change_columns": {"n": ("n", "bigint")}}, "partition key n cannot become bigint"),
        ({"key_order": ["n", "s", "t"]}, "partition key n cannot move to another position"),
    ],
)
def test_an_index_forbids_changes_of_its_keys_and_new_names_of_all(
    catalog: Catalog, table: Table, change: dict[str, object], said: str, is_built: bool
) -> None:
    if not is_built:
        add(catalog, ("a", "1", "1"))
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    with pytest.raises(IndexedKeyError, match=f"{said} because of partition index by_n; delete the index") as refused:
        catalog.alter_table(TABLE, **change)  # type: ignore[arg-type]
    assert (refused.value.table, refused.value.indexes) == (TABLE, ("by_n",))
    assert catalog.get_table(TABLE) == table
    catalog.delete_partition_index(TABLE, "by_n")
    catalog.drop_partitions(TABLE)
    catalog.alter_table(TABLE, **change)  # type: ignore[arg-type]


def test_an_index_leaves_other_keys_and_columns_alone(catalog: Catalog, table: Table) -> None:
    catalog.create_partition_index(TABLE, "by_s", ["s"])
    add(catalog, ("a", "1", "1"))
    changed = catalog.alter_table(
        TABLE, change_columns={"v": ("v", "bigint"), "t": ("t", "int"), "s": Column("s", "STRING", "a comment")}
    )
    assert [key.type for key in changed.partition_keys] == ["string", "int", "int"]
    assert_every_partition_has_its_item(catalog, TABLE)


@pytest.mark.usefixtures("unfit_values")
def test_a_failed_index_forbids_nothing(catalog: Catalog, table: Table) -> None:
    add(catalog, ("a", "foo", "1"))
    catalog.create_partition_index(TABLE, "i", ["n"])
    catalog.build_partition_index(TABLE, "i")
    catalog.alter_table(TABLE, change_columns={"s": ("text", "string")})


def test_a_key_with_values_takes_a_type_under_which_they_are_the_same(catalog: Catalog) -> None:
    keys = [("d", "decimal(5,2)"), ("at", "timestamp"), ("f", "float")]
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys)
    add(catalog, ("1.50", "2024-01-01 00:00:00", "0.5"), ("-7", "2024-01-01 00:00:00.5", "1e2"))
    changed = catalog.alter_table(TABLE, change_columns={"d": ("d", "decimal(7,3)"), "f": ("f", "double")})
    assert [str(each) for each in changed.key_types] == ["decimal(7,3)", "timestamp", "double"]
    assert catalog.get_partition(TABLE, ("1.500", "2024-01-01", "0.50")).values[0] == "1.50"
    for change in ({"at": ("at", "string")}, {"d": ("d", "decimal(5,0)")}, {"f": ("f", "int")}):
        with pytest.raises(InvalidTableError, match="differ between"):
            catalog.alter_table(TABLE, change_columns=change)  # type: ignore[arg-type]
    add(catalog, ("0", "2024-01-02", "0.1"))
    with pytest.raises(InvalidTableError, match=r"differ between double and float: '0\.1'"):
        catalog.alter_table(TABLE, change_columns={"f": ("f", "float")})

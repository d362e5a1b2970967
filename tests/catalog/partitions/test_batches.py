"""Batches of partitions: get, update and delete, in which each member fails by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from catalog import Catalog, IndexDefinition, NewPartition, PartitionUpdate, Table
from catalog.errors import CatalogError, TableNotFoundError
from catalog.partitions import batches
from tests.support.commands import calve
from tests.support.partition_files import append, stored_rows

TABLE = "demo.t"


@pytest.fixture
def table(catalog: Catalog) -> Table:
    created = catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("country", "string"), ("day", "int")],
        indexes=[IndexDefinition("by_day", ("day",))],
    )
    values = [(country, str(day)) for country in ("DE", "US") for day in range(5)]
    catalog.add_partitions(TABLE, [NewPartition(value, None, 1, 10, 100) for value in values])
    return created


def reasons(result: Any) -> list[tuple[Any, str]]:
    return [(failure.partition, failure.error) for failure in result.failures]


def test_partitions_are_got_in_the_order_of_the_request(catalog: Catalog, table: Table) -> None:
    result = catalog.batch_get_partitions(
        TABLE,
        [
            ("US", "3"),
            {"day": "01", "country": "DE"},
            ("FR", "1"),
            ("US", "03"),
            {"country": "DE"},
            {"country": "DE", "year": "1"},
            ("DE", "1", "2"),
        ],
    )
    assert [partition.values for partition in result.partitions] == [("US", "3"), ("DE", "1")]
    assert reasons(result) == [
        (("US", "03"), "InvalidPartitionSpecError"),
        ({"country": "DE"}, "PartialPartitionSpecError"),
        ({"country": "DE", "year": "1"}, "InvalidPartitionSpecError"),
        (("DE", "1", "2"), "InvalidPartitionError"),
        (("FR", "1"), "PartitionNotFoundError"),
    ]
    assert "named twice" in result.failures[0].reason
    assert result.failures[-1].reason == "table demo.t has no partition country=FR/day=1"
    assert catalog.batch_get_partitions(TABLE, []).partitions == []
    with pytest.raises(TableNotFoundError):
        catalog.batch_get_partitions("demo.none", [("a", "1")])


def test_partitions_are_deleted_with_their_items(catalog: Catalog, table: Table) -> None:
    result = catalog.batch_delete_partitions(TABLE, [("US", "3"), ("FR", "1"), ("DE", "0")])
    assert (result.changed, reasons(result)) == (2, [(("FR", "1"), "PartitionNotFoundError")])
    assert len(list(catalog.get_partitions(TABLE))) == 8
    assert catalog.verify_partition_index(TABLE, "by_day").is_exact
    again = catalog.batch_delete_partitions(TABLE, [("US", "3")])
    assert (again.changed, reasons(again)) == (0, [(("US", "3"), "PartitionNotFoundError")])


def test_a_bad_member_does_not_affect_the_others(catalog: Catalog, table: Table, tmp_path: Path) -> None:
    taken = catalog.get_partition(TABLE, ("US", "0")).location
    result = catalog.batch_update_partitions(
        TABLE,
        [
            PartitionUpdate(("DE", "0"), row_count=7, file_count=2, size_bytes=70),
            PartitionUpdate(("DE", "1"), location=f"{tmp_path}/own"),
            PartitionUpdate(("DE", "2"), location=taken),
            PartitionUpdate(("DE", "3"), location=f"{tmp_path}/own"),
            PartitionUpdate(("DE", "4"), format="orc", properties={"a": "1"}),
            PartitionUpdate(("US", "1"), format="xml"),
            PartitionUpdate(("US", "2"), row_count=-1),
            PartitionUpdate(("US", "3"), properties={"calve.format": "orc"}),
            PartitionUpdate(("US", "4"), location=f"{tmp_path}/new", row_count=3),
            PartitionUpdate(("FR", "1"), row_count=1),
        ],
    )
    assert (result.changed, sorted(reasons(result))) == (
        5,
        [
            (("DE", "2"), "LocationTakenError"),
            (("FR", "1"), "PartitionNotFoundError"),
            (("US", "1"), "InvalidTableError"),
            (("US", "2"), "InvalidRequestError"),
            (("US", "3"), "InvalidPartitionError"),
        ],
    )
    found = {partition.values: partition for partition in catalog.get_partitions(TABLE)}
    counts = {values: (p.row_count, p.file_count, p.size_bytes) for values, p in found.items()}
    assert counts[("DE", "0")] == (7, 2, 70)
    moved = {("DE", "1"), ("DE", "3")}
    assert {counts[values] for values in moved} == {(None, None, None)}
    assert counts[("US", "4")] == (3, None, None)
    unchanged = counts.keys() - moved - {("DE", "0"), ("US", "4")}
    assert {counts[values] for values in unchanged} == {(10, 1, 100)}
    assert found[("DE", "1")].location == f"{tmp_path}/own"
    assert (found[("DE", "4")].format, found[("DE", "4")].properties) == ("orc", {"a": "1"})


def test_counts_of_one_partition_are_changed(catalog: Catalog, table: Table) -> None:
    changed = catalog.alter_partition(TABLE, ("DE", "0"), row_count=0, size_bytes=5)
    assert (changed.row_count, changed.file_count, changed.size_bytes) == (0, 1, 5)
    with pytest.raises(CatalogError, match="row_count is True, expected a whole number, 0 or more"):
        catalog.alter_partition(TABLE, ("DE", "0"), row_count=True)


def test_partitions_of_a_table_stored_as_iceberg_change_with_its_snapshots(catalog: Catalog) -> None:
    catalog.create_table("demo.ice", columns=[("v", "int")], partition_keys=[("k", "int")], format="iceberg")
    append(catalog, "load", "demo.ice", {("1",): [1, 2], ("2",): [3]})
    updates = [PartitionUpdate(("1",), row_count=1), PartitionUpdate(("2",), properties={"a": "1"})]
    result = catalog.batch_update_partitions("demo.ice", updates)
    assert (result.changed, reasons(result)) == (1, [(("1",), "UnsupportedChangeError")])
    counts = {partition.values: partition.row_count for partition in catalog.get_partitions("demo.ice")}
    assert counts == {("1",): 2, ("2",): 1}
    assert catalog.batch_delete_partitions("demo.ice", [("1",), ("3",)]).changed == 1
    assert stored_rows(catalog, "demo.ice") == [(3, 2)]


def test_a_batch_needs_few_statements(catalog: Catalog) -> None:
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("k", "int")])
    keys = [(str(number),) for number in range(500)]
    catalog.add_partitions(TABLE, [NewPartition(key) for key in keys])
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(catalog.storage.engine, "before_cursor_execute", count)
    try:
        assert len(catalog.batch_get_partitions(TABLE, keys).partitions) == 500
        updates = [PartitionUpdate(key, row_count=1, location=f"/elsewhere/{key[0]}") for key in keys]
        assert catalog.batch_update_partitions(TABLE, updates).changed == 500
        assert catalog.batch_delete_partitions(TABLE, keys).changed == 500
    finally:
        event.remove(catalog.storage.engine, "before_cursor_execute", count)
    assert len(statements) < 60


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "location": st.sampled_from(["/else/a", "/else/b", "/else/a/deep", "/else/c"]),
        "format": st.sampled_from(["orc", "parquet", "xml"]),
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", None])),
        "row_count": st.integers(-1, 3),
        "size_bytes": st.integers(0, 3),
    },
)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(["0", "1", "2", "3", "9"]), CHANGES), max_size=5, unique_by=lambda change: change[0]
    )
)
def test_a_batch_changes_what_single_changes_do(catalog: Catalog, changes: list[tuple[str, dict[str, Any]]]) -> None:
    for name in ("one", "many"):
        if any(table.name == name for table in catalog.list_tables("demo")):
            catalog.drop_table(f"demo.{name}")

    def after(name: str) -> dict[str | None, Any]:
        found = {p.values[0]: p for p in catalog.get_partitions(f"demo.{name}")}
        root = catalog.get_table(f"demo.{name}").location
        catalog.drop_table(f"demo.{name}")
        return {
            key: (p.location.removeprefix(root), p.format, dict(p.properties), p.row_count, p.file_count, p.size_bytes)
            for key, p in found.items()
        }

    def make(name: str) -> str:
        catalog.create_table(f"demo.{name}", columns=[("v", "int")], partition_keys=[("k", "int")])
        catalog.add_partitions(f"demo.{name}", [NewPartition((str(n),), None, 1, 10, 100) for n in range(4)])
        return f"demo.{name}"

    one, failed = make("one"), []
    # A batch locks partitions in the order of their ids, which is that of the keys here.
    for key, change in sorted(changes, key=lambda pair: pair[0]):
        try:
            catalog.alter_partition(one, (key,), **change)
        except CatalogError as error:
            failed.append((key, type(error).__name__))
    expected = after("one")
    result = catalog.batch_update_partitions(make("many"), [PartitionUpdate((key,), **c) for key, c in changes])
    assert after("many") == expected
    refused = [(failure.partition[0], failure.error) for failure in result.failures]  # type: ignore[index]
    # Of a partition that does not exist, one of two errors is reported.
    assert sorted(key for key, _ in refused) == sorted(key for key, _ in failed)
    assert {error for key, error in refused if key != "9"} == {error for key, error in failed if key != "9"}
    assert result.changed == len(changes) - len(failed)


def test_more_than_one_transaction(catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH", 3)
    keys = [(country, str(day)) for country in ("US", "FR") for day in range(5)]
    got = catalog.batch_get_partitions(TABLE, keys)
    assert [partition.values for partition in got.partitions] == keys[:5]
    result = catalog.batch_update_partitions(TABLE, [PartitionUpdate(key, row_count=1) for key in keys])
    assert (result.changed, len(result.failures)) == (5, 5)
    assert catalog.batch_delete_partitions(TABLE, keys).changed == 5


# --- on the command line ----------------------------------------------------------------------------------------------


def test_commands_name_those_that_fail(catalog: Catalog, table: Table, tmp_path: Path) -> None:
    got = calve("batch", "get", TABLE, "country=DE/day=1", "country=FR/day=1", "country=DE/day=2")
    assert (got.exit_code, got.stdout.splitlines()) == (1, ["country=DE/day=1", "country=DE/day=2"])
    assert got.stderr == ("country=FR/day=1: PartitionNotFoundError: table demo.t has no partition country=FR/day=1\n")
    changes = tmp_path / "changes.jsonl"
    changes.write_text(
        '{"partition": "country=DE/day=1", "row_count": 3}\n\n{"partition": "country=DE", "row_count": 3}\n'
    )
    updated = calve("batch", "update", TABLE, str(changes))
    assert (updated.exit_code, updated.stdout) == (1, "Updated 1 partition(s) of demo.t.\n")
    assert updated.stderr.startswith("country=DE: PartialPartitionSpecError: ")
    listed = tmp_path / "partitions"
    listed.write_text("country=DE/day=1\ncountry=DE/day=2\n")
    assert '"row_count": 3' in calve("batch", "get", TABLE, "--file", str(listed), "--json").stdout
    deleted = calve("batch", "delete", TABLE, "--file", str(listed))
    assert (deleted.exit_code, deleted.stdout, deleted.stderr) == (0, "Dropped 2 partition(s) of demo.t.\n", "")
    assert calve("batch", "delete", TABLE).exit_code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 has no `partition`"),
        ('{"row_count": 1}', "line 1 has no `partition`"),
        ('{"partition": "k=1", "rows": 1}', "line 1 has unknown fields rows; those of a change are location, format"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(
    catalog: Catalog, table: Table, tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_text(line)
    done = calve("batch", "update", TABLE, str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr

"""Work on tables with many partitions: no full scans, no connection held by a reader, no long transaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import func, insert, select

from catalog import Catalog, IndexDefinition, NewPartition, Table
from catalog.errors import TableNotFoundError
from catalog.indexes.keys import after_prefix
from catalog.indexes.skipping import prefix_span
from catalog.model import OnInvalid
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationKind
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.queries import Queries
from catalog.storage.schema import (
    DataFileRow,
    IndexItemRow,
    PartitionIndexRow,
    PartitionRow,
    SetAsideFileRow,
    SourceFileRow,
)
from catalog.tables.neighbours import neighbours
from catalog.tables.own_files import PurgedFiles
from catalog.types.ranges import KeyRange
from tests.support import killed_changes
from tests.support.effort import sampled
from tests.support.processes import context

TABLE = "demo.t"


def add_many(catalog: Catalog, count: int) -> None:
    """Create a table with a number of partitions."""
    catalog.create_table(TABLE, columns=[("x", "int")], partition_keys=[("n", "int")])
    catalog.add_partitions(TABLE, [NewPartition([str(number)]) for number in range(count)])


# --- partitions of an operation -------------------------------------------------------------------------------------


def test_partitions_of_an_operation_are_found_by_an_index(catalog: Catalog) -> None:
    add_many(catalog, 5_000)
    operation = catalog.operations.begin("run-1", OperationKind.ADD_PARTITIONS, TABLE)
    with catalog.storage.write() as connection:
        adder = PartitionAdder(connection, catalog._definitions, TABLE, operation_number=operation.number)
        added = [NewPartition([str(-number)]) for number in range(1, 4)]
        adder.add(added, if_not_exists=False, on_invalid=OnInvalid.REFUSE)
    assert {partition.values for partition in catalog.operation_partitions("run-1")} == {("-1",), ("-2",), ("-3",)}
    is_postgresql = catalog.storage.is_postgresql
    query = Queries(is_postgresql).partitions_of_operation(catalog.get_table(TABLE).id, operation.number)
    with catalog.storage.write() as connection:
        if is_postgresql:
            connection.exec_driver_sql("ANALYZE calve_partition")
        explain = "EXPLAIN" if is_postgresql else "EXPLAIN QUERY PLAN"
        plan = str(connection.exec_driver_sql(f"{explain} {query.sql}", query.parameters).all())
    assert "ix_calve_partition_table_id_operation_number" in plan


# --- plans of the database ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["none", "of an empty table"])
def test_postgresql_reads_each_range_from_the_index_whatever_its_statistics(catalog: Catalog, statistics: str) -> None:
    if not catalog.storage.is_postgresql:
        pytest.skip("SQLite plans these queries without statistics")
    catalog.create_table(
        TABLE,
        columns=[("x", "int")],
        partition_keys=[("a", "int"), ("b", "string"), ("c", "int")],
        indexes=[IndexDefinition("by_a", ("a", "b", "c"))],
    )
    tables = ("calve_partition", "calve_index_item")
    with catalog.storage.write() as connection:
        for name in tables:
            connection.exec_driver_sql(f"ALTER TABLE {name} SET (autovacuum_enabled = false)")
            if statistics != "none":
                connection.exec_driver_sql(f"ANALYZE {name}")
    values = [(str(a), str(b), str(c)) for a in range(20) for b in range(20) for c in range(50)]
    catalog.add_partitions(TABLE, list(map(NewPartition, values)))
    table, [index] = catalog.get_table(TABLE), catalog.get_partition_indexes(TABLE)
    encode = [key_type.encode for key_type in table.key_types]
    prefixes = [encode[0](a) + encode[1](str(b)) for a in range(20) for b in range(20)]
    point = encode[2](7)
    ranges = [KeyRange(prefix + point, prefix + after_prefix(point)) for prefix in prefixes]
    queries = Queries(is_postgresql=True)
    for query, scans in (
        (queries.items(index.id, ranges), 1),
        (queries.partitions_in_ranges(index.id, ranges), 2),
        (queries.distinct_values(index.id, list(map(prefix_span, prefixes)), table.key_types[2]), 2),
        (queries.partitions_by_id(list(range(1, 5_000))), 1),
    ):
        with catalog.storage.read() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            lines = [line for (line,) in driver.execute(f"EXPLAIN (ANALYZE) {query.sql}", query.parameters)]
        plan = "\n".join(lines)
        assert len([line for line in lines if "using pk_" in line or "on pk_" in line]) == scans, plan
        refused = ("Seq Scan", "Materialize", "Hash", "Merge", "Bitmap Index Scan on pk_calve_index_item")
        assert not any(word in plan for word in refused), plan
        # Both bounds of a range are in the condition of the index.
        conditions = [line for line in lines if "Index Cond" in line and "index_id" in line]
        assert all("key >=" in line and "key <" in line for line in conditions), plan


# --- open iterators -------------------------------------------------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize("connections", sampled(["2", "5"], ["2"]))
def test_open_iterators_leave_connections_to_others(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, connections: str
) -> None:
    add_many(catalog, 12_000)
    monkeypatch.setenv("CALVE_CONNECTIONS", connections)
    monkeypatch.setenv("CALVE_CONNECTION_TIMEOUT_SECONDS", "1")
    # A small limit, so that the remaining rows are written to a file.
    monkeypatch.setattr("catalog.partitions.spooling._ROWS_IN_MEMORY", 6_000)
    with Catalog.open(catalog_url) as limited:
        readers = [limited.get_partitions(TABLE, expression) for expression in (None, "n >= 0", "n < 99999") * 5]
        read = [[next(reader)] for reader in readers]
        assert limited.drop_partitions(TABLE, "n >= 11000") == 1_000
        for partitions, reader in zip(read, readers, strict=True):
            partitions.extend(reader)
            # All iterators return the state at their start.
            assert {partition.values for partition in partitions} == {(str(number),) for number in range(12_000)}
            assert len(partitions) == 12_000
        assert sum(1 for _ in limited.get_partitions(TABLE)) == 11_000


def test_iterators_that_are_closed_early_give_their_connection_back(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_many(catalog, 12_000)
    monkeypatch.setenv("CALVE_CONNECTIONS", "2")
    monkeypatch.setenv("CALVE_CONNECTION_TIMEOUT_SECONDS", "1")
    with Catalog.open(catalog_url) as limited:
        for _ in range(3):
            reader = limited.get_partitions(TABLE)
            next(reader)
            assert not limited.storage.streams.acquire(blocking=False)
            del reader
            assert limited.storage.streams.acquire(blocking=False)
            limited.storage.streams.release()


# --- dropping ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(catalog: Catalog) -> Table:
    """A table with 350 partitions and two indexes, and with rows in all SQL tables that belong to tables."""
    indexes = [IndexDefinition("by_n", ("n",)), IndexDefinition("by_s", ("s", "n"))]
    keys = [("n", "int"), ("s", "string")]
    catalog.create_table(TABLE, columns=[("x", "int")], partition_keys=keys, indexes=indexes)
    new = [NewPartition([str(number), "a"]) for number in range(350)]
    catalog.add_partitions(TABLE, new)
    catalog.alter_partition(TABLE, ("0", "a"), rename_to=("0", "b"))
    table = catalog.get_table(TABLE)
    source = {"table_id": table.id, "size_bytes": 1, "modified_at_ms": 1, "operation_number": 1}
    file = {"table_id": table.id, "row_count": 1, "size_bytes": 1, "statistics": "{}", "operation_number": 1}
    with catalog.storage.write() as connection:
        connection.execute(insert(SourceFileRow), [{**source, "path": f"{number:03}"} for number in range(350)])
        aside = {**source, "settings_digest": "", "reason": "", "set_aside_at_ms": 1}
        connection.execute(insert(SetAsideFileRow), [{**aside, "path": f"{number:03}"} for number in range(350)])
        connection.execute(
            insert(DataFileRow), [{**file, "path": str(number), "partition_id": number % 3} for number in range(350)]
        )
    return table


def rows_left(catalog: Catalog, table: Table) -> dict[str, int]:
    """Return the number of rows that the catalog has of a table of old, by kind; items are those of any table."""
    with catalog.storage.read() as connection:
        counts = {
            row.__tablename__: connection.scalar(select(func.count()).where(row.table_id == table.id)) or 0
            for row in (PartitionRow, DataFileRow, SourceFileRow, SetAsideFileRow, PartitionIndexRow)
        }
        return counts | {"items": connection.scalar(select(func.count()).select_from(IndexItemRow)) or 0}


def killed(work: Callable[..., None], *arguments: str) -> bool:
    """Run an action in another process; return whether it was killed."""
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode in (0, -9)
    return process.exitcode == -9


@pytest.mark.long
def test_a_drop_of_a_table_that_is_killed_between_its_transactions_is_finished_by_vacuum(
    catalog: Catalog, catalog_url: str, indexed: Table
) -> None:
    assert killed(killed_changes.drop_table, catalog_url, TABLE, Point.COMMITTED)
    with pytest.raises(TableNotFoundError):
        catalog.get_table(TABLE)
    # The name and the values can be reused at once.
    catalog.create_table(TABLE, columns=[("x", "int")], partition_keys=[("n", "int"), ("s", "string")])
    catalog.add_partitions(TABLE, [NewPartition(["1", "a"])])
    new = catalog.get_table(TABLE)
    assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("1", "a")]
    counts = [sum(rows_left(catalog, indexed).values())]
    assert counts[0] == 6 * 250
    assert catalog.vacuum(dry_run=True).purged == ()
    for _ in range(3):
        assert killed(killed_changes.vacuum, catalog_url, Point.PARTLY_COMMITTED)
        counts.append(sum(rows_left(catalog, indexed).values()))
    assert counts == [1500, 1400, 1300, 1250]
    assert not killed(killed_changes.vacuum, catalog_url, "")
    assert set(rows_left(catalog, indexed).values()) == {0}
    assert [operation.state for operation in catalog.operations.list(TABLE)] == ["CLEANED"]
    assert rows_left(catalog, new)["calve_partition"] == 1


def test_a_drop_of_a_database_that_is_killed_is_finished_by_vacuum(
    catalog: Catalog, catalog_url: str, indexed: Table
) -> None:
    assert killed(killed_changes.drop_database, catalog_url, "demo", Point.COMMITTED)
    assert "demo" not in [database.name for database in catalog.list_databases()]
    assert sum(rows_left(catalog, indexed).values()) == 6 * 250
    # The names can be used again at once, and keep what is new.
    catalog.create_database("demo")
    catalog.create_table(TABLE, columns=[("x", "int")], partition_keys=[("n", "int"), ("s", "string")])
    catalog.add_partitions(TABLE, [NewPartition(["1", "a"])])
    catalog.vacuum()
    assert set(rows_left(catalog, indexed).values()) == {0}
    assert [partition.values for partition in catalog.get_partitions(TABLE)] == [("1", "a")]


def test_a_drop_of_partitions_that_is_killed_between_its_transactions_goes_on(
    catalog: Catalog, catalog_url: str, indexed: Table
) -> None:
    for left in (250, 150, 50):
        assert killed(killed_changes.drop_partitions, catalog_url, TABLE, "n >= 50", Point.PARTLY_COMMITTED)
        assert rows_left(catalog, indexed)["calve_partition"] == left
        for name in ("by_n", "by_s"):
            assert catalog.verify_partition_index(TABLE, name).is_exact
    assert catalog.drop_partitions(TABLE, "n >= 50") == 0
    assert catalog.drop_partitions(TABLE) == 50


def test_nobody_waits_while_a_table_or_its_partitions_are_dropped(
    catalog: Catalog, catalog_url: str, indexed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = [NewPartition([str(number)]) for number in range(400)]
    catalog.create_table("demo.other", columns=[("x", "int")], partition_keys=[("n", "int")])
    done: list[int] = []

    def work(point: Point) -> None:
        """Write, as others would, where any lock that is held would be waited for in vain."""
        if point is Point.PARTLY_COMMITTED:
            others.add_partitions("demo.other", [add[len(done)]])
            done.append(len(done))

    monkeypatch.setenv("CALVE_CONNECTION_TIMEOUT_SECONDS", "5")
    with Catalog.open(catalog_url) as others, killed_changes.small_batches(), monkeypatch.context() as patched:
        for module in ("catalog.tables.dropping", "catalog.partitions.changing"):
            patched.setattr(f"{module}.reached", work)
        assert catalog.drop_partitions(TABLE, "n >= 100") == 250
        assert len(done) == 3
        catalog.add_partitions(TABLE, [NewPartition([str(number), "c"]) for number in range(300)])
        catalog.drop_table(TABLE)
    assert len(done) > 10
    assert set(rows_left(catalog, indexed).values()) == {0}


def test_a_small_table_is_dropped_in_one_transaction(catalog: Catalog, indexed: Table) -> None:
    catalog.drop_table(TABLE)
    assert set(rows_left(catalog, indexed).values()) == {0}
    assert catalog.operations.list() == []


def test_partitions_of_a_dropped_table_keep_no_files_of_others(
    catalog: Catalog, indexed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{indexed.location}/own"
    catalog.add_partitions(TABLE, [NewPartition(["1", "own"], location=folder)])
    monkeypatch.setattr("catalog.tables.dropping.finish_drop", lambda *_: PurgedFiles())
    with killed_changes.small_batches():
        catalog.drop_table(TABLE)
    assert rows_left(catalog, indexed)["calve_partition"] == 251
    with catalog.storage.read() as connection:
        assert list(neighbours(connection, [indexed.location])) == []
    assert catalog.create_table("demo.own", columns=[("x", "int")], location=folder).location == folder

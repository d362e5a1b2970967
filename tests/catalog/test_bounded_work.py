"""Work on tables with many partitions: no full scans, no connection held by a reader, no long transaction."""

from __future__ import annotations

import pytest

from catalog import Catalog, NewPartition
from catalog.model import OnInvalid
from catalog.operations import OperationKind
from catalog.partitions.adding import PartitionAdder
from catalog.partitions.queries import Queries

TABLE = "demo.t"


def add_many(catalog: Catalog, count: int) -> None:
    """Create a table with so many partitions."""
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


# --- open iterators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connections", ["2", "5"])
def test_open_iterators_leave_connections_to_others(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, connections: str
) -> None:
    add_many(catalog, 12_000)
    monkeypatch.setenv("CALVE_CONNECTIONS", connections)
    monkeypatch.setenv("CALVE_CONNECTION_TIMEOUT_SECONDS", "1")
    # As if they were many: the rest goes into a file.
    monkeypatch.setattr("catalog.partitions.spooling._ROWS_IN_MEMORY", 6_000)
    with Catalog.open(catalog_url) as limited:
        readers = [limited.get_partitions(TABLE, expression) for expression in (None, "n >= 0", "n < 99999") * 5]
        read = [[next(reader)] for reader in readers]
        assert limited.drop_partitions(TABLE, "n >= 11000") == 1_000
        for partitions, reader in zip(read, readers, strict=True):
            partitions.extend(reader)
            # All see the state in which they began.
            assert {partition.values for partition in partitions} == {(str(number),) for number in range(12_000)}
            assert len(partitions) == 12_000
        assert sum(1 for _ in limited.get_partitions(TABLE)) == 11_000


def test_iterators_that_are_given_up_give_their_connection_back(
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

"""Outcomes are reported once: by the task that made the change, or by those who look for the others."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from catalog import Catalog, Table
from catalog.operations.changes import ANNOUNCES
from catalog.operations.outcomes import KINDS
from catalog.operations.records import OperationKind, OperationState
from catalog.storage.schema import OperationRow

TABLE = "demo.flights"


def finish(catalog: Catalog, name: str, kind: OperationKind, request: dict[str, object] | None = None) -> None:
    catalog.operations.begin(name, kind, TABLE, request)
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, name, OperationState.CLEANED)


def age(catalog: Catalog) -> None:
    """Let tasks have had their time to report."""
    with catalog.storage.write() as connection:
        connection.execute(update(OperationRow).values(heartbeat_at_ms=OperationRow.heartbeat_at_ms - 60_001))


@pytest.mark.usefixtures("flights")
def test_each_outcome_is_reported_once(catalog: Catalog) -> None:
    for kind in OperationKind:
        finish(catalog, kind.value, kind)
    assert (catalog.outcomes.list(), catalog.outcomes.pending()) == ([], None), "their tasks may report them still"
    age(catalog)
    unreported = catalog.outcomes.list()
    assert {operation.kind for operation in unreported} == set(KINDS)
    assert [operation.number for operation in unreported] == sorted(operation.number for operation in unreported)
    assert catalog.outcomes.pending() == unreported[-1].number
    assert [operation.id for operation in catalog.outcomes.list(limit=2)] == [row.id for row in unreported[:2]]
    ids = [operation.id for operation in unreported]
    assert catalog.outcomes.mark(ids[1:]) == len(ids) - 1
    assert [operation.id for operation in catalog.outcomes.list()] == ids[:1]
    assert catalog.outcomes.mark(ids) == 1
    assert (catalog.outcomes.list(), catalog.outcomes.pending()) == ([], None)


def test_what_did_not_end_well_or_is_reported_by_its_dag_is_left_out(catalog: Catalog, flights: Table) -> None:
    catalog.operations.begin("running", OperationKind.REBALANCE, TABLE)
    catalog.operations.begin("failed", OperationKind.REVERT, TABLE)
    catalog.operations.fail("failed", "TEST", "it failed")
    finish(catalog, "of a DAG", OperationKind.ADD_PARTITIONS, {"settings": {ANNOUNCES: True}})
    finish(catalog, "of a statement", OperationKind.ADD_PARTITIONS, {"settings": {}})
    age(catalog)
    assert [operation.id for operation in catalog.outcomes.list()] == ["of a statement"]

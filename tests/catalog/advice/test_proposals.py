"""The advisor's latest proposals for each table."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from catalog import Catalog, Table
from catalog.errors import TableNotFoundError
from catalog.operations.records import OperationKind, OperationState
from catalog.storage.schema import ProposalRow


def proposal(table: str, number: int = 0) -> dict[str, Any]:
    return {
        "statement": f"ALTER TABLE {table} COMPACT",
        "reason": f"reason {number}",
        "dag": "compact_partitions",
        "request": {"tables": [table], "dry_run": True},
    }


def reasons(catalog: Catalog) -> list[tuple[str, str]]:
    return [(stored.table, stored.reason) for stored in catalog.proposals.list()]


def finish(catalog: Catalog, kind: OperationKind, state: OperationState, operation_id: str = "run") -> None:
    catalog.operations.begin(operation_id, kind, "demo.flights")
    with catalog.storage.write() as connection:
        catalog.operations.advance(connection, operation_id, state)


def test_the_latest_proposals_replace_the_earlier_ones_of_their_table(catalog: Catalog, flights: Table) -> None:
    catalog.create_table("demo.other", columns=[("v", "int")])
    catalog.proposals.replace("demo.other", [proposal("demo.other", 7)])
    catalog.proposals.replace(flights.full_name, [proposal(flights.full_name, number) for number in range(3)])
    catalog.proposals.replace(flights.full_name.upper(), [proposal(flights.full_name, number) for number in (4, 3)])
    expected = [(flights.full_name, "reason 4"), (flights.full_name, "reason 3"), ("demo.other", "reason 7")]
    assert reasons(catalog) == expected
    assert [stored.reason for stored in catalog.proposals.list(limit=1)] == ["reason 4"]
    assert catalog.proposals.list()[0].request == {"tables": [flights.full_name], "dry_run": True}
    catalog.proposals.replace(flights.full_name, [])
    assert reasons(catalog) == expected[2:]


@pytest.mark.parametrize(
    ("kind", "state", "holds"),
    [
        (OperationKind.REBALANCE, OperationState.CLEANED, False),
        (OperationKind.COMPACT_PARTITIONS, OperationState.CLEANED, False),
        (OperationKind.COMPACT_PARTITIONS, OperationState.PLANNED, True),
        (OperationKind.VERIFY_INDEX, OperationState.CLEANED, True),
    ],
)
def test_proposals_hold_until_the_partitions_were_changed(
    catalog: Catalog, flights: Table, kind: OperationKind, state: OperationState, holds: bool
) -> None:
    finish(catalog, OperationKind.REBALANCE, OperationState.CLEANED, "earlier")
    with catalog.storage.write() as connection:
        connection.execute(sa.text("UPDATE calve_operation SET created_at_ms = created_at_ms - 1000"))
    catalog.proposals.replace(flights.full_name, [proposal(flights.full_name)])
    if state is OperationState.PLANNED:
        catalog.operations.begin("run", kind, flights.full_name)
    else:
        finish(catalog, kind, state)
    assert bool(reasons(catalog)) is holds


def test_proposals_of_tables_that_were_renamed_or_dropped_are_not_shown(catalog: Catalog, flights: Table) -> None:
    catalog.create_table("demo.other", columns=[("v", "int")])
    for table in (flights.full_name, "demo.other"):
        catalog.proposals.replace(table, [proposal(table)])
    catalog.alter_table(flights.full_name, rename_to="trips")
    catalog.drop_table("demo.other")
    assert reasons(catalog) == []
    catalog.proposals.replace("demo.trips", [])
    with catalog.storage.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(ProposalRow)) == 0


def test_nothing_is_proposed_for_an_unknown_table(catalog: Catalog) -> None:
    with pytest.raises(TableNotFoundError):
        catalog.proposals.replace("demo.none", [])

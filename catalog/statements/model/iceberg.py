"""Statements about migrations to Iceberg, and about snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from catalog.statements.model.base import TableStatement
from catalog.statements.terms import PartitionValues, TableReference


@dataclass(frozen=True, kw_only=True)
class MigrationStatement(TableStatement):
    """A statement that migrates the files of a Hive table to Iceberg.

    Attributes:
        options: Fields of `catalog.migration.requests.MigrationRequest`, as they were written.
        verify: Compare both sides before the flip.
        verified_partitions: The number of partitions to compare before the flip; None for all.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    verify: bool = True
    verified_partitions: int | None = None


@dataclass(frozen=True, kw_only=True)
class MigrateTable(MigrationStatement):
    """CALL iceberg.system.migrate."""


@dataclass(frozen=True, kw_only=True)
class SnapshotTable(MigrationStatement):
    """CALL iceberg.system.snapshot.

    Attributes:
        target: The new Iceberg table; by default in the Hive table's database.
    """

    target: TableReference


@dataclass(frozen=True, kw_only=True)
class AddFilesFromTable(MigrationStatement):
    """ALTER TABLE … EXECUTE add_files_from_table, on the Iceberg table.

    Attributes:
        source: The Hive table.
        partitions: Values of some of its keys; None for all partitions.
    """

    source: TableReference
    partitions: PartitionValues | None = None


@dataclass(frozen=True, kw_only=True)
class RevertTable(TableStatement):
    """CALL iceberg.system.revert.

    Attributes:
        lose_data: Revert even if Iceberg commits have written data since.
    """

    lose_data: bool = False


@dataclass(frozen=True, kw_only=True)
class RollBackToSnapshot(TableStatement):
    """CALL calve.system.rollback_to_snapshot."""

    snapshot_id: int


@dataclass(frozen=True, kw_only=True)
class RollBackToTimestamp(TableStatement):
    """CALL calve.system.rollback_to_timestamp.

    Attributes:
        at: With a time zone.
    """

    at: datetime

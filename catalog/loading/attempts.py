"""One attempt at publishing the files that a job has written for a load."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from catalog.datafiles.intake import lock_current
from catalog.datafiles.publishing import publish_altered
from catalog.loading.replacing import Removed
from catalog.model import LoadMode, OnInvalid, Table
from catalog.operations.attempts import require_latest
from catalog.operations.journal import Operations
from catalog.operations.records import Operation
from catalog.operations.staging import REJECTED
from catalog.partitions.snapshots import ReplacedFiles
from catalog.storage import Storage
from catalog.tables.definitions import Definitions
from catalog.tables.evolution import Evolution

MOST_REASONS = 20
"""Number of refused partitions that a report or an error names."""


@dataclass(frozen=True)
class PublishOptions:
    """The options of `Loading.publish`.

    Attributes:
        removed: The partitions that are dropped in the same transaction, with their rows: id → values.
        evolution: The columns that the table gets in the same transaction; None if it keeps its own.
        replaced: The files of a table stored as Iceberg that the new ones replace; None for all files of `removed` and,
            if the mode is REPLACE, of the partitions of the new files.
        read_from: The metadata of the table of which the new rows were read; None if they come from elsewhere.
        replaces_others: With the mode REPLACE, the new files also replace those of partitions that were not read,
            although others of the table were (`catalog.loading.replaced_folders`).
    """

    on_invalid: OnInvalid = OnInvalid.REFUSE
    is_quarantined: bool = False
    mode: LoadMode = LoadMode.NEW
    is_load: bool = True
    removed: Removed = field(default_factory=dict)
    evolution: Evolution | None = None
    replaced: ReplacedFiles | None = None
    read_from: str | None = None
    replaces_others: bool = False


@dataclass(frozen=True)
class PublishAttempt:
    """One attempt at publishing a folder of files.

    Attributes:
        table: The table when the attempt began.
        folder: Relative to the table's location.
    """

    storage: Storage
    definitions: Definitions
    operations: Operations
    operation: Operation
    step: str
    number: int
    table: Table
    folder: str
    options: PublishOptions

    @property
    def rejected_folder(self) -> str:
        """The folder of the files of refused partitions, relative to the table's location."""
        return f"{REJECTED}/{self.operation.folder}"

    def guard(self, connection: Connection, *, hold: bool = True) -> Operation:
        """Check that the attempt may publish; return the operation.

        Args:
            hold: Also lock the operation until the end of the transaction.

        Raises:
            FencedError: The attempt is fenced, or a later attempt has written the load again.
        """
        operation = self.operations.guard(connection, self.operation.id, self.step, self.number, hold=hold)
        # A statement has no separate step that writes files: the attempt that publishes has written them itself.
        if self.options.is_load:
            require_latest(connection, operation, self.folder)
        return operation

    def evolve(self, connection: Connection) -> None:
        """Give the table the columns with which the files were written; this locks it exclusively if it gets any.

        Raises:
            ConflictError: The table's columns were changed meanwhile.
            UnsupportedIcebergTypeError, ReservedColumnError: The table is stored as Iceberg, which has no such columns.
        """
        evolution = self.options.evolution
        if not evolution:
            return
        if self.table.has_file_rows:
            before = lock_current(connection, self.definitions, self.table)
            publish_altered(connection, before, evolution.apply(connection, self.definitions, before))
        else:
            before = self.definitions.lock_table(connection, self.table, exclusive=True)
            evolution.apply(connection, self.definitions, before)

    def heartbeat(self) -> None:
        """Tell that the attempt is alive.

        Raises:
            FencedError: The attempt is fenced.
        """
        self.operations.heartbeat(self.operation.id, self.step, self.number)

"""The entry of a migrated table in the metastore that it was imported from: switched after the flip, and restored.

The original entry is journaled before it is changed, so that after a crash the change can be continued or undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog.errors import InvalidRequestError, SourceEntryChangedError
from catalog.importing.flipping import SourceFlip, entry_of, flip_source, prepare_flip, restore_source
from catalog.metastores.source import Entry, open_source
from catalog.model import Table
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind
from catalog.tables.definitions import Definitions

_LOOKED_AT = 1_000
"""The number of a table's latest operations that are searched for its migration."""

PREPARE = "prepare_source"
"""The step that journals the entry before and after its switch."""


@dataclass(frozen=True)
class ChangedEntry:
    """An entry that was changed since a migration switched it.

    Attributes:
        flip: The migration's change.
        entry: The current entry.
        fields: The names of the changed fields.
    """

    flip: SourceFlip
    entry: Entry
    fields: tuple[str, ...]

    def __str__(self) -> str:
        """Describe the changes."""
        return (
            f"the entry of {self.flip.table} in {self.flip.address} was changed after the migration: "
            f"{', '.join(self.fields[:10])}"
        )


class SourceEntries:
    """The entries of one catalog's tables in the metastores that they were imported from."""

    def __init__(self, definitions: Definitions, operations: Operations) -> None:
        """Set the definitions of the tables, and the journal."""
        self._definitions = definitions
        self._operations = operations

    def prepare(self, operation: Operation, metadata_location: str) -> None:
        """Journal the planned change of the entry of an operation's table, without writing to the metastore.

        Raises:
            InvalidRequestError: The table was not imported from a metastore.
            SourceEntryChangedError: Its entry there has another location.
            UnsupportedSourceTableError: Its entry there is not a Hive table.
            SourceUnavailableError: The metastore does not answer.
        """
        table = self._definitions.get_table(operation.table)
        address, name = require_entry(table)
        with open_source(address) as source, self._operations.attempt(operation.id, PREPARE) as attempt:
            flip = prepare_flip(source, name, metadata_location, location=table.location)
            self._operations.finish_job(operation.id, PREPARE, attempt, flip.as_json())

    def flip(self, operation_id: str) -> None:
        """Switch the entry to the Iceberg table; safe to repeat.

        Raises:
            SourceEntryChangedError: The entry was changed since it was prepared.
            SourceUnavailableError: The metastore does not answer.
        """
        flip = SourceFlip.from_json(self._operations.get(operation_id).report[PREPARE])
        with open_source(flip.source) as source:
            flip_source(source, flip)

    def flip_of(self, table: Table) -> SourceFlip | None:
        """Return the change that the latest migration of a table has made to its entry; None if it made none."""
        for operation in self._operations.list(table.full_name, limit=_LOOKED_AT):
            if operation.kind is OperationKind.MIGRATE and operation.is_committed:
                stored = operation.report.get(PREPARE)
                return None if stored is None else SourceFlip.from_json(stored)
        return None

    def changed_since(self, flip: SourceFlip) -> ChangedEntry | None:
        """Return the entry if it differs from both the switched and the original entry; None otherwise.

        Raises:
            SourceUnavailableError: The metastore does not answer.
        """
        with open_source(flip.source) as source:
            current = source.entry(flip.table)
            if not source.differences(current, flip.before):
                return None
            fields = source.differences(current, flip.after)
        return ChangedEntry(flip, current, tuple(fields)) if fields else None

    def check_restore(self, flip: SourceFlip) -> None:
        """Check that an entry can be restored, and that no engine has committed through it.

        Raises:
            SourceEntryChangedError: The entry was changed since it was switched.
            SourceUnavailableError: The metastore does not answer.
        """
        if changed := self.changed_since(flip):
            raise SourceEntryChangedError(
                f"{changed}; nothing was changed. The catalog does not have what was committed through this entry; "
                "revert with lose_data => true to accept the loss"
            )

    def restore(self, flip: SourceFlip, *, is_forced: bool) -> None:
        """Restore the original entry; safe to repeat.

        Args:
            is_forced: Restore it even if it was changed since.

        Raises:
            SourceEntryChangedError: The entry was changed since, and `is_forced` is false.
            SourceUnavailableError: The metastore does not answer.
        """
        with open_source(flip.source) as source:
            restore_source(source, flip, is_forced=is_forced)


def require_entry(table: Table) -> tuple[Any, Any]:
    """Return the metastore that a table was imported from, and its name there.

    Raises:
        InvalidRequestError: It was not imported.
    """
    entry = entry_of(table)
    if entry is None:
        raise InvalidRequestError(
            f"table {table.full_name} was not imported from a metastore, so it has no entry to switch; migrate it "
            "without flip_source, or import it first: calve import hms://…"
        )
    return entry

"""The entry that a migrated table has in the metastore that it was imported from: flipped behind it, and back.

What the entry was is journaled before it is touched, so that a process that dies in between leaves all that it takes to
go on, or back.
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
"""Operations of a table, the latest ones, among which its migration is looked for."""

PREPARE = "prepare_source"
"""The step that journals what the entry is, and what it becomes."""


@dataclass(frozen=True)
class ChangedEntry:
    """An entry that somebody has changed since a migration flipped it.

    Attributes:
        entry: What it is now.
        fields: The names of what was changed.
    """

    flip: SourceFlip
    entry: Entry
    fields: tuple[str, ...]

    def __str__(self) -> str:
        """Describe the changes."""
        return (
            f"the entry of {self.flip.table} in {self.flip.address} is no longer what the migration wrote: "
            f"{', '.join(self.fields[:10])} changed since"
        )


class SourceEntries:
    """The entries of one catalog's tables in the metastores that they came from."""

    def __init__(self, definitions: Definitions, operations: Operations) -> None:
        """Take the definitions of the tables, and the journal."""
        self._definitions = definitions
        self._operations = operations

    def prepare(self, operation: Operation, metadata_location: str) -> None:
        """Journal what becomes of the entry of an operation's table; nothing is written to the metastore.

        Raises:
            InvalidRequestError: The table came from no metastore.
            SourceEntryChangedError: Its entry there has another location.
            UnsupportedSourceTableError: Its entry there is no Hive table's.
            SourceUnavailableError: The metastore does not answer.
        """
        table = self._definitions.get_table(operation.table)
        address, name = require_entry(table)
        with open_source(address) as source, self._operations.attempt(operation.id, PREPARE) as attempt:
            flip = prepare_flip(source, name, metadata_location, location=table.location)
            self._operations.finish_job(operation.id, PREPARE, attempt, flip.as_json())

    def flip(self, operation_id: str) -> None:
        """Make the entry that of the Iceberg table; does no harm when done again.

        Raises:
            SourceEntryChangedError: Somebody has changed it since it was prepared.
            SourceUnavailableError: The metastore does not answer.
        """
        flip = SourceFlip.from_json(self._operations.get(operation_id).report[PREPARE])
        with open_source(flip.source) as source:
            flip_source(source, flip)

    def flip_of(self, table: Table) -> SourceFlip | None:
        """Return what the latest migration of a table has made of its entry; None when it has left it alone."""
        for operation in self._operations.list(table.full_name, limit=_LOOKED_AT):
            if operation.kind is OperationKind.MIGRATE and operation.is_committed:
                found = operation.report.get(PREPARE)
                return None if found is None else SourceFlip.from_json(found)
        return None

    def changed_since(self, flip: SourceFlip) -> ChangedEntry | None:
        """Return an entry that is neither as it was flipped nor as it was before; None for another.

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
        """Make sure that an entry can be what it was, and nobody has committed through it.

        Raises:
            SourceEntryChangedError: Somebody has changed it since it was flipped.
            SourceUnavailableError: The metastore does not answer.
        """
        if changed := self.changed_since(flip):
            raise SourceEntryChangedError(
                f"{changed}; nothing was changed. What was committed through it is not in the catalog; revert with "
                "lose_data => true to lose it"
            )

    def restore(self, flip: SourceFlip, *, is_forced: bool) -> None:
        """Make an entry again what it was before; does no harm when done again.

        Raises:
            SourceEntryChangedError: Somebody has changed it since, and that is not forced.
            SourceUnavailableError: The metastore does not answer.
        """
        with open_source(flip.source) as source:
            restore_source(source, flip, is_forced=is_forced)


def require_entry(table: Table) -> tuple[Any, Any]:
    """Return the metastore that a table was imported from, and its name there.

    Raises:
        InvalidRequestError: It was not imported.
    """
    found = entry_of(table)
    if found is None:
        raise InvalidRequestError(
            f"table {table.full_name} came from no metastore, so it has no entry there to be flipped; migrate it "
            "without flip_source, or import it first: calve import hms://…"
        )
    return found

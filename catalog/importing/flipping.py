"""Switch of a table's entry in its metastore to Iceberg, and its exact restoration.

The caller stores a prepared flip before it is written, so that it can be continued or undone after a crash.

    address, name = entry_of(table)                          # with open_source(address) as source:
    flip = prepare_flip(source, name, metadata_location)     # reads only
    …                                                        # store flip.as_json() persistently
    flip_source(source, flip)                                # writes; safe to repeat
    restore_source(source, flip)                             # restores the Hive table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import InvalidSourceError, SourceEntryChangedError, UnsupportedSourceTableError
from catalog.files.locations import location_key
from catalog.importing.definition import definition_of
from catalog.metastores.address import SourceAddress
from catalog.metastores.source import Entry, Source
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.tables.own_properties import SOURCE_PROPERTY


@dataclass(frozen=True)
class SourceFlip:
    """A table's entry before and after its switch to Iceberg.

    Attributes:
        address: The address of the source, without the table.
    """

    address: str
    table: TableName
    metadata_location: str
    before: Entry
    after: Entry

    def as_json(self) -> dict[str, Any]:
        """Return the flip as JSON values."""
        return {
            "address": self.address,
            "table": str(self.table),
            "metadata_location": self.metadata_location,
            "before": self.before,
            "after": self.after,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SourceFlip:
        """Return the flip that `as_json` has stored."""
        return cls(**{**fields, "table": TableName.parse(fields["table"])})

    @property
    def source(self) -> SourceAddress:
        """The source, for `catalog.metastores.source.open_source`."""
        return SourceAddress.parse(self.address)[0]


def entry_of(table: Table) -> tuple[SourceAddress, TableName] | None:
    """Return the source that a table was imported from, and its name there; None if it was not imported.

    Raises:
        InvalidSourceError: The property that names the source is invalid.
    """
    text = table.properties.get(SOURCE_PROPERTY)
    if text is None:
        return None
    address, names = SourceAddress.parse(text)
    if len(names) != 1 or "." not in names[0]:
        raise InvalidSourceError(
            f"table {table.full_name}: property {SOURCE_PROPERTY} is {text!r}, which does not name a table; import "
            "it again"
        )
    return address, TableName.parse(names[0])


def prepare_flip(source: Source, table: TableName, metadata_location: str, *, location: str) -> SourceFlip:
    """Return the switch of a table's entry, without writing it.

    Args:
        metadata_location: The metadata file of the Iceberg table.
        location: The table's location in the catalog.

    Raises:
        TableNotFoundError: The source does not have the table.
        SourceEntryChangedError: The entry has another location, so it describes other data.
        UnsupportedSourceTableError: It is a view, or is no longer a Hive table, for instance an Iceberg table.
    """
    definition = definition_of(source.table(table), source.address.of_table(table))
    if definition.view_text is not None:
        raise UnsupportedSourceTableError(f"{table} of {source.address} is a view, which has no files; name a table")
    if location_key(definition.location) != location_key(location):
        raise SourceEntryChangedError(
            f"the entry of {table} in {source.address} has the location {definition.location}, but the table in the "
            f"catalog has {location}; the entry was not changed. Import the table again"
        )
    entry = source.entry(table)
    return SourceFlip(
        str(source.address), table, metadata_location, entry, source.iceberg_entry(entry, metadata_location)
    )


def flip_source(source: Source, flip: SourceFlip) -> bool:
    """Switch a table's entry to the Iceberg table; return whether it changed.

    The check of the entry and the write are atomic for others: Glue compares versions; a metastore is locked, as for
    an Iceberg commit, and from 2.3.10 or 4.0 on also compares the time of the last change.

    Raises:
        SourceEntryChangedError: The entry equals neither the old nor the new one.
        SourceUnavailableError: The source does not answer, or another process has locked the table.
    """
    return _replace(source, flip, flip.before, flip.after)


def restore_source(source: Source, flip: SourceFlip, *, is_forced: bool = False) -> bool:
    """Restore a table's original entry; return whether it changed.

    Args:
        is_forced: Restore it even if it changed after the flip, for instance by an Iceberg commit, which its readers
            then lose.

    Raises:
        SourceEntryChangedError: It changed after the flip, and `is_forced` is false.
    """
    return _replace(source, flip, flip.after, flip.before, is_forced=is_forced)


def _replace(source: Source, flip: SourceFlip, old: Entry, new: Entry, *, is_forced: bool = False) -> bool:
    with source.locked(flip.table):
        current = source.entry(flip.table)
        if not source.differences(current, new):
            return False
        differing = source.differences(current, old)
        if differing and not is_forced:
            raise SourceEntryChangedError(
                f"the entry of {flip.table} in {flip.address} is no longer as Calve left it: "
                f"{', '.join(differing[:10])} changed since; nothing was written. Find out who changed it, and start "
                "again or force the change"
            )
        source.replace_entry(flip.table, current, new)
        return True

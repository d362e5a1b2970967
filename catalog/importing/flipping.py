"""Turning a table's own entry in its metastore into that of an Iceberg table, and back into just what it was.

A flip is prepared, kept by the caller, and then made: whoever is killed in between has what it takes to go on or back.

    address, name = entry_of(table)                          # with open_source(address) as source:
    flip = prepare_flip(source, name, metadata_location)     # reads only
    …                                                        # keep flip.as_json() where it outlives this process
    flip_source(source, flip)                                # writes; does no harm when done again
    restore_source(source, flip)                             # the Hive table again
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
    """What a table's entry is before and after a flip.

    Attributes:
        address: Of the source, without the table.
    """

    address: str
    table: TableName
    metadata_location: str
    before: Entry
    after: Entry

    def as_json(self) -> dict[str, Any]:
        """Return the flip for JSON."""
        return {
            "address": self.address,
            "table": str(self.table),
            "metadata_location": self.metadata_location,
            "before": self.before,
            "after": self.after,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SourceFlip:
        """Read what `as_json` wrote."""
        return cls(**{**fields, "table": TableName.parse(fields["table"])})

    @property
    def source(self) -> SourceAddress:
        """The source, for `catalog.metastores.source.open_source`."""
        return SourceAddress.parse(self.address)[0]


def entry_of(table: Table) -> tuple[SourceAddress, TableName] | None:
    """Return the source that a table was imported from, and its name there; None when it came from none.

    Raises:
        InvalidSourceError: The property that says so was changed into something else.
    """
    text = table.properties.get(SOURCE_PROPERTY)
    if text is None:
        return None
    address, names = SourceAddress.parse(text)
    if len(names) != 1 or "." not in names[0]:
        raise InvalidSourceError(
            f"table {table.full_name}: property {SOURCE_PROPERTY} is {text!r}, which names no table; import it again"
        )
    return address, TableName.parse(names[0])


def prepare_flip(source: Source, table: TableName, metadata_location: str, *, location: str) -> SourceFlip:
    """Return a table's entry, and what it becomes; nothing is written.

    Args:
        metadata_location: The metadata file of the Iceberg table.
        location: The folder that the table has in the catalog.

    Raises:
        TableNotFoundError: The source has no such table.
        SourceEntryChangedError: The entry names another folder, so it is the entry of other data.
        UnsupportedSourceTableError: It is a view, or no Hive table (any more), for instance an Iceberg table.
    """
    found = source.table(table)
    definition = definition_of(found, source.address.of_table(table))
    if definition.view_text is not None:
        raise UnsupportedSourceTableError(f"{table} of {source.address} is a view, which has no files; name a table")
    if location_key(definition.location) != location_key(location):
        raise SourceEntryChangedError(
            f"the entry of {table} in {source.address} has the location {definition.location}, and the table in the "
            f"catalog {location}, so the entry stays; import the table again"
        )
    entry = source.entry(table)
    return SourceFlip(
        str(source.address), table, metadata_location, entry, source.iceberg_entry(entry, metadata_location)
    )


def flip_source(source: Source, flip: SourceFlip) -> bool:
    """Make a table's entry that of the Iceberg table; return whether that is new.

    The look at the entry and the write are one step for others: Glue compares versions; a metastore is locked, as for
    a commit of Iceberg, and compares the time of the last change from 2.3.10 or 4.0 on.

    Raises:
        SourceEntryChangedError: The entry is neither as it was nor as it becomes.
        SourceUnavailableError: The source does not answer, or somebody else holds the table.
    """
    return _replace(source, flip, flip.before, flip.after)


def restore_source(source: Source, flip: SourceFlip, *, is_forced: bool = False) -> bool:
    """Make a table's entry again what it was before the flip; return whether it was something else.

    Args:
        is_forced: Also when the entry is not any more as the flip made it, for instance because Iceberg has committed
            through it since: then what was committed is lost to its readers.

    Raises:
        SourceEntryChangedError: It is not, and that is not forced.
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
                f"the entry of {flip.table} in {flip.address} is not any more as it was left: "
                f"{', '.join(differing[:10])} changed since; nothing was written. Look at who changed it, and begin "
                "anew, or force it"
            )
        source.replace_entry(flip.table, current, new)
        return True

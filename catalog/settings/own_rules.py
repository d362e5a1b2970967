"""Rules of single tables: those of their entries in the list of tables."""

from __future__ import annotations

from catalog.model.identifiers import TableName
from catalog.settings.notify_rules import NotifyRules
from catalog.settings.table_config import listed_entry


def has_quality_rules(table: str) -> bool:
    """Return whether the table's entry has quality rules; False without an entry, or without a list.

    Raises:
        InvalidConfigurationError: As `read_table_list`, or the table's entry is invalid.
    """
    entry = listed_entry(str(TableName.parse(table)))
    return entry is not None and bool(entry.quality)


def own_notify_rules(table: str) -> NotifyRules | None:
    """Return the notifiers of the table's entry; None without an entry, or without a list.

    Raises:
        InvalidConfigurationError: As `read_table_list`, or the table's entry is invalid.
    """
    entry = listed_entry(str(TableName.parse(table)))
    return None if entry is None else NotifyRules.from_config(entry.notify)

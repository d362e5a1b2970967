"""Rules of single tables: those of their entries in the list of tables."""

from __future__ import annotations

from catalog.model.identifiers import TableName
from catalog.settings.learning_rules import LearningRule, Measure
from catalog.settings.notify_rules import NotifyRules
from catalog.settings.table_config import has_list, listed_entry, read_table_list


def has_quality_rules(table: str) -> bool:
    """Return whether the table's entry has quality rules; False without an entry, or without a list.

    Raises:
        InvalidConfigurationError: As `read_table_list`, or the table's entry is invalid.
    """
    entry = listed_entry(str(TableName.parse(table)))
    return entry is not None and bool(entry.quality)


def freshness_rules() -> dict[str, LearningRule]:
    """Return table → what is learned from its partitions, of the tables whose freshness is learned.

    Invalid entries are left out, because each load names them; so are all without a list.

    Raises:
        InvalidConfigurationError: The list cannot be read.
    """
    if not has_list():
        return {}
    found = {}
    for name, entry in read_table_list().configs.items():
        rule = LearningRule.from_config(entry.quality.get("learn"), keys=())
        if rule is not None and Measure.FRESHNESS in rule.measures:
            found[name] = rule
    return found


def own_notify_rules(table: str) -> NotifyRules | None:
    """Return the notifiers of the table's entry; None without an entry, or without a list.

    Raises:
        InvalidConfigurationError: As `read_table_list`, or the table's entry is invalid.
    """
    entry = listed_entry(str(TableName.parse(table)))
    return None if entry is None else NotifyRules.from_config(entry.notify)

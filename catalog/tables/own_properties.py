"""Properties of tables whose names begin with `calve.`: settings of users, and records that only Calve writes.

The records say where a table came from. A migration believes them: it overwrites the metastore's entry that one names.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import ReservedPropertyError

RESERVED = "calve."
"""Prefix of the names of Calve's own properties, which no source may define."""

SOURCE_PROPERTY = "calve.source"
"""The property of an imported table that names its entry: `hms://host:9083/sales.orders`."""

SNAPSHOT_OF = "calve.snapshot_of"
"""The property of a snapshot that names its table: of an Iceberg table that never was a Hive table."""

TARGET_PROPERTY = "calve.target_file_bytes"
NEW_PARTITIONS_PROPERTY = "calve.max_new_partitions"

_SETTINGS = frozenset((TARGET_PROPERTY, NEW_PARTITIONS_PROPERTY))


def refuse_records(properties: Mapping[str, str | None] | None) -> None:
    """Refuse changes of properties that only Calve writes.

    Args:
        properties: Those to set, or to take away (None).

    Raises:
        ReservedPropertyError: One is reserved.
    """
    for name in filter(_is_record, properties or ()):
        raise ReservedPropertyError(name, sorted(_SETTINGS))


def without_records(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a user can set."""
    return {name: value for name, value in properties.items() if not _is_record(name)}


def _is_record(name: str) -> bool:
    return str(name).strip().lower().startswith(RESERVED) and name not in _SETTINGS

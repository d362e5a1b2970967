"""Table properties whose names start with `calve.`: user settings, and records that only Calve writes.

Records name the origin of a table. Users must not set them, because a migration trusts them: it overwrites the
metastore entry that a record names.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import ReservedPropertyError

RESERVED = "calve."
"""The prefix of Calve's own properties, which a source must not define."""

SOURCE_PROPERTY = "calve.source"
"""The property of an imported table that names its entry: `hms://host:9083/sales.orders`."""

SNAPSHOT_OF = "calve.snapshot_of"
"""The property of a snapshot (an Iceberg table that never was a Hive table) that names its source table."""

TARGET_PROPERTY = "calve.target_file_bytes"
NEW_PARTITIONS_PROPERTY = "calve.max_new_partitions"

_SETTINGS = frozenset((TARGET_PROPERTY, NEW_PARTITIONS_PROPERTY))


def refuse_records(properties: Mapping[str, str | None] | None) -> None:
    """Refuse to change properties that only Calve writes.

    Args:
        properties: The properties to set, or to remove (None).

    Raises:
        ReservedPropertyError: A property is reserved.
    """
    for name in filter(_is_record, properties or ()):
        raise ReservedPropertyError(name, sorted(_SETTINGS))


def without_records(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that users can set."""
    return {name: value for name, value in properties.items() if not _is_record(name)}


def _is_record(name: str) -> bool:
    return str(name).strip().lower().startswith(RESERVED) and name not in _SETTINGS

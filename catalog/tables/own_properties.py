"""Table properties whose names start with `calve.`: user settings, and records that only Calve writes.

Records name the origin of a table. Users must not set them, because a migration trusts them: it overwrites the
metastore entry that a record names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from catalog.errors import InvalidTableError, ReservedPropertyError

RESERVED = "calve."
"""The prefix of Calve's own properties, which a source must not define."""

SOURCE_PROPERTY = "calve.source"
"""The property of an imported table that names its entry: `hms://host:9083/sales.orders`."""

SNAPSHOT_OF = "calve.snapshot_of"
"""The property of a snapshot (an Iceberg table that never was a Hive table) that names its source table."""

CREATED_AS = "calve.created_as"
"""The property of a table in which CREATE TABLE … AS SELECT collects rows: the name that it gets when it has them.

A table that is renamed loses the property. So no other table has it, and one that has it can be dropped.
"""

TARGET_PROPERTY = "calve.target_file_bytes"
NEW_PARTITIONS_PROPERTY = "calve.max_new_partitions"

_SETTINGS = {
    TARGET_PROPERTY: (re.compile("0*[1-9][0-9]{0,14}"), "a number of bytes above 0"),
    NEW_PARTITIONS_PROPERTY: (re.compile("[0-9]{1,9}"), "a whole number"),
}
"""Setting → its allowed values, and their description."""


def check_own_properties(properties: Mapping[str, str | None] | None) -> None:
    """Check changes of properties: only Calve writes records, and settings have numbers as values.

    Args:
        properties: The properties to set, or to remove (None).

    Raises:
        ReservedPropertyError: A property is reserved.
        InvalidTableError: The value of a setting is not allowed.
    """
    for name in filter(_is_record, properties or ()):
        raise ReservedPropertyError(name, sorted(_SETTINGS))
    for name, (allowed, description) in _SETTINGS.items():
        value = (properties or {}).get(name)
        if value is not None and not (isinstance(value, str) and allowed.fullmatch(value)):
            raise InvalidTableError(f"property {name} is {value!r}, expected {description}")


def read_setting(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return the value of a table's setting, or the default if it is not set.

    Raises:
        InvalidTableError: The value is not allowed; metastores may have any.
    """
    check_own_properties({name: properties.get(name)})
    return int(properties.get(name, default))


def without_records(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that users can set."""
    return {name: value for name, value in properties.items() if not _is_record(name)}


def _is_record(name: str) -> bool:
    return str(name).strip().lower().startswith(RESERVED) and name not in _SETTINGS

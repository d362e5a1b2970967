"""Partition specs, as in `PARTITION (k='v', k2='w')`: one partition or, with fewer keys, all that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from catalog.errors import InvalidPartitionSpecError, PartialPartitionSpecError
from catalog.model import Table
from catalog.model.partition_names import NULL_TEXTS
from catalog.types.key_types import KeyValueError

PartitionSpec: TypeAlias = Mapping[str, str | None]
"""Partition key → value as in the path, unescaped.

None, `__HIVE_DEFAULT_PARTITION__` and an empty string mean Hive's null.
"""

_LONGEST_LITERAL = 10_000
"""Longer values are not part of the filter, but compared with the partitions that it returns."""


def spec_values(table: Table, spec: PartitionSpec) -> dict[int, str | None]:
    """Return the values of a spec by position of the key, in the table's order.

    Raises:
        InvalidPartitionSpecError: A name is not a partition key of the table, or a key is named twice.
    """
    values: dict[int, str | None] = {}
    for name, value in spec.items():
        position = table.key_position(name.strip())
        if position is None:
            raise InvalidPartitionSpecError(
                f"{name} is not a partition key of {table.full_name}; its keys are "
                f"{', '.join(table.key_names) or 'none'}"
            )
        if position in values:
            raise InvalidPartitionSpecError(f"partition key {table.key_names[position]} is named twice")
        values[position] = None if value in NULL_TEXTS else value
    return dict(sorted(values.items()))


def whole_values(table: Table, spec: PartitionSpec | Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the values of the one partition that a spec names.

    Args:
        spec: A spec, or the values in the order of the keys.

    Raises:
        InvalidPartitionSpecError: As for `spec_values`.
        PartialPartitionSpecError: A key is missing.
    """
    if not isinstance(spec, Mapping):
        return tuple(None if value in NULL_TEXTS else value for value in spec)
    values = spec_values(table, spec)
    if missing := [name for position, name in enumerate(table.key_names) if position not in values]:
        raise PartialPartitionSpecError(
            f"a partition of {table.full_name} is named by all its keys ({', '.join(table.key_names)}), but "
            f"{', '.join(missing)} has no value; give it one"
        )
    return tuple(values.values())


def spec_filter(table: Table, values: Mapping[int, str | None]) -> str | None:
    """Return a filter that matches all partitions with these values, and perhaps others; None without a condition.

    Args:
        values: Position of the key → value.
    """
    conditions = []
    for position, value in values.items():
        name, key_type = table.key_names[position], table.key_types[position]
        if value is None:
            conditions.append(f"`{name}` is null")
        elif len(value) <= _LONGEST_LITERAL:
            try:
                conditions.append(f"`{name}` = {key_type.format(key_type.parse(value))}")
            except KeyValueError:
                continue
    return " and ".join(conditions) or None

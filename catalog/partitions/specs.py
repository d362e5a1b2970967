"""Partition specs, as in `PARTITION (k='v', k2='w')`: one partition, or with fewer keys all that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from catalog.errors import InvalidPartitionSpecError, PartialPartitionSpecError
from catalog.model import Table
from catalog.model.partition_names import NULL_TEXTS
from catalog.types.key_types import KeyValueError

PartitionSpec: TypeAlias = Mapping[str, str | None]
"""Partition key → value as the path shows it, unescaped.

None, `__HIVE_DEFAULT_PARTITION__` and an empty text are Hive's null.
"""

_LONGEST_LITERAL = 10_000
"""Longer values are compared with the partitions found, and not said in the filter."""


def spec_values(table: Table, spec: PartitionSpec) -> dict[int, str | None]:
    """Return position of the key → value, for each key that a spec names, in the table's order.

    Raises:
        InvalidPartitionSpecError: A name is no partition key of the table, or one is named twice.
    """
    values: dict[int, str | None] = {}
    for name, value in spec.items():
        position = table.key_position(name.strip())
        if position is None:
            raise InvalidPartitionSpecError(
                f"{name} is no partition key of {table.full_name}, which has {', '.join(table.key_names) or 'none'}"
            )
        if position in values:
            raise InvalidPartitionSpecError(f"partition key {table.key_names[position]} is named twice")
        values[position] = None if value in NULL_TEXTS else value
    return dict(sorted(values.items()))


def whole_values(table: Table, spec: PartitionSpec | Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the values of the one partition that a spec names; values in the order of the keys are returned as given.

    Raises:
        InvalidPartitionSpecError: As `spec_values`.
        PartialPartitionSpecError: A key is not named.
    """
    if not isinstance(spec, Mapping):
        return tuple(None if value in NULL_TEXTS else value for value in spec)
    values = spec_values(table, spec)
    if missing := [name for position, name in enumerate(table.key_names) if position not in values]:
        raise PartialPartitionSpecError(
            f"a partition of {table.full_name} is named by all its keys ({', '.join(table.key_names)}), and "
            f"{', '.join(missing)} has no value here; give it one"
        )
    return tuple(values.values())


def spec_filter(table: Table, values: Mapping[int, str | None]) -> str | None:
    """Return a filter that all partitions with these values match, and perhaps others; None when nothing can be said.

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

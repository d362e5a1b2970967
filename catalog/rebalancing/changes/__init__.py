"""Changes of a table's partitions: add, split, drop, merge, another number of hash partitions.

A new kind of change is a module here and a line in `_KINDS`; forms, the journal, planning and the Spark jobs take it
from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from catalog.errors import InvalidRequestError
from catalog.rebalancing.changes.base import PartitionChange
from catalog.rebalancing.changes.hashes import SetPartitionCount
from catalog.rebalancing.changes.values import AddPartitions, DropPartitions, MergePartitions, SplitPartition

_KINDS: tuple[type[PartitionChange], ...] = (
    AddPartitions,
    SplitPartition,
    DropPartitions,
    MergePartitions,
    SetPartitionCount,
)
CHANGES: Mapping[str, type[PartitionChange]] = {change.kind: change for change in _KINDS}
"""The kinds of changes by their names in requests."""

__all__ = [
    "CHANGES",
    "AddPartitions",
    "DropPartitions",
    "MergePartitions",
    "PartitionChange",
    "SetPartitionCount",
    "SplitPartition",
    "change_from_json",
]


def change_from_json(stored: Mapping[str, Any]) -> PartitionChange:
    """Return the change that plain values describe, as `PartitionChange.as_json` writes them.

    Raises:
        InvalidRequestError: They describe none.
    """
    kind = CHANGES.get(str(stored.get("change")))
    if kind is None:
        raise InvalidRequestError(f"change is {stored.get('change')!r}; it is one of {', '.join(CHANGES)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    values.pop("change")
    try:
        return kind(**values)
    except TypeError as error:
        names = ", ".join(field.name for field in fields(kind))
        raise InvalidRequestError(f"change {kind.kind} takes {names}: {error}") from None

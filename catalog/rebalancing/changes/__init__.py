"""Changes of a table's partitions: add, split, drop, merge, set the number of hash partitions, and place files.

A new kind of change needs a module here and a line in `_KINDS`, which forms, the journal, planning and the Spark jobs
use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from catalog.errors import InvalidRequestError
from catalog.rebalancing.changes.base import PartitionChange
from catalog.rebalancing.changes.hashes import SetPartitionCount
from catalog.rebalancing.changes.placing import PlaceFiles
from catalog.rebalancing.changes.values import AddPartitions, DropPartitions, MergePartitions, SplitPartition

_KINDS: tuple[type[PartitionChange], ...] = (
    AddPartitions,
    SplitPartition,
    DropPartitions,
    MergePartitions,
    SetPartitionCount,
    PlaceFiles,
)
CHANGES: Mapping[str, type[PartitionChange]] = {change.kind: change for change in _KINDS}
"""Name in requests → kind of change."""

__all__ = [
    "CHANGES",
    "AddPartitions",
    "DropPartitions",
    "MergePartitions",
    "PartitionChange",
    "PlaceFiles",
    "SetPartitionCount",
    "SplitPartition",
    "change_from_json",
]


def change_from_json(stored: Mapping[str, Any]) -> PartitionChange:
    """Return the change that `PartitionChange.as_json` stored.

    Raises:
        InvalidRequestError: The kind is unknown, or the fields are not those of the kind.
    """
    kind = CHANGES.get(str(stored.get("change")))
    if kind is None:
        raise InvalidRequestError(f"change is {stored.get('change')!r}, expected one of {', '.join(CHANGES)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    values.pop("change")
    try:
        return kind(**values)
    except TypeError as error:
        names = ", ".join(field.name for field in fields(kind))
        raise InvalidRequestError(f"change {kind.kind} takes {names}: {error}") from None

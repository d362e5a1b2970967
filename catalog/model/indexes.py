"""Partition indexes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAXIMUM_INDEXES = 3
"""Maximum number of indexes per table, without FAILED ones. Source: AWS Glue, partition indexes."""


class IndexState(StrEnum):
    """States of a partition index, named like Glue's `PartitionIndexStatus`."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DELETING = "DELETING"
    FAILED = "FAILED"


MAINTAINED_INDEX_STATES = (IndexState.CREATING, IndexState.ACTIVE)
"""States in which each added partition gets an item, so its values must be valid."""


@dataclass(frozen=True)
class OffendingPartition:
    """A partition that caused an index build to fail."""

    values: tuple[str | None, ...]
    location: str
    problem: str


@dataclass(frozen=True)
class PartitionIndex:
    """A named, ordered list of partition keys of one table.

    Attributes:
        failure_code: Reason of a failed build; None unless FAILED.
        failure_detail: The reason as text.
        offending: The first invalid partitions, at most 100.
        failed_at_ms: Time of the failure; None unless FAILED.
    """

    name: str
    keys: tuple[str, ...]
    state: IndexState
    failure_code: str | None = None
    failure_detail: str | None = None
    offending: tuple[OffendingPartition, ...] = ()
    id: int = 0
    failed_at_ms: int | None = None


@dataclass(frozen=True)
class IndexDefinition:
    """A partition index to create: its name and its keys, in order."""

    name: str
    keys: tuple[str, ...]

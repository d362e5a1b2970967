"""Partitions, and the results of adding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from catalog.errors import RefusedPartition
from catalog.model.partition_names import NULL_VALUE, partition_path
from catalog.model.tables import PARTITION_ID, FileFormat, Table

ENCRYPTED_PROPERTY = "has_encrypted_data"
"""The partition property that is `true` if the partition's data is encrypted. Source: AWS Glue."""


def is_encrypted(properties: Mapping[str, str] | None) -> bool:
    """Return whether a partition's properties mark its data as encrypted, ignoring case."""
    return any(
        name.lower() == ENCRYPTED_PROPERTY and value.strip().lower() == "true"
        for name, value in (properties or {}).items()
    )


class PartitionState(StrEnum):
    """Visibility of a partition to readers."""

    VISIBLE = "VISIBLE"
    QUARANTINED = "QUARANTINED"


class OnInvalid(StrEnum):
    """How to treat a batch that has partitions refused by an index."""

    REFUSE = "refuse"
    SKIP = "skip"


class RepairMode(StrEnum):
    """The changes that a repair makes, named as in Hive's MSCK."""

    ADD = "add"
    DROP = "drop"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition to add.

    Attributes:
        values: One string per partition key, in order. None is Hive's null (`__HIVE_DEFAULT_PARTITION__`). In a shorter
            sequence, the values of the last keys are missing.
        location: Folder of its files; None for the Hive-style folder below the table's location.
        row_count, file_count, size_bytes: None when unknown.
        format: The format of its files, when it differs from the table's.
        descriptor: JSON that a metastore's protocol keeps of its files besides (`catalog.partitions.descriptors`).
    """

    values: Sequence[str | None]
    location: str | None = None
    file_count: int | None = None
    row_count: int | None = None
    size_bytes: int | None = None
    properties: Mapping[str, str] | None = None
    format: FileFormat | None = None
    descriptor: str | None = None


class Partition(NamedTuple):
    """A partition of a table.

    Attributes:
        values: One string per partition key, in order, as given. None is null or a missing value. The id in a scheme.
        location: Folder of its files.
        format: The format of its files, when it differs from the table's.
        descriptor_id: The id of its descriptor (`catalog.partitions.descriptors`); None without one.
    """

    id: int
    values: tuple[str | None, ...]
    location: str
    file_count: int | None
    row_count: int | None
    size_bytes: int | None
    properties: Mapping[str, str]
    state: PartitionState
    created_at_ms: int
    format: FileFormat | None = None
    descriptor_id: int | None = None

    def name(self, table: Table) -> str:
        """Return the partition's name as Hive shows it, `k=v/k2=v2`; of a partition scheme, `_partition_id=3`."""
        return partition_path(table.key_names if table.scheme is None else (PARTITION_ID,), self.values)

    def as_dict(self, table: Table) -> dict[str, str]:
        """Return key name → value, with null as `__HIVE_DEFAULT_PARTITION__`."""
        return {
            name: NULL_VALUE if value is None else value
            for name, value in zip(table.key_names, self.values, strict=True)
        }


@dataclass(frozen=True)
class AddResult:
    """The result of `add_partitions`.

    Attributes:
        added: Number of new partitions.
        existing: Number of given partitions that existed before (only with `if_not_exists`).
        refused: The partitions that an index refuses (only when invalid partitions are skipped).
    """

    added: int
    existing: int
    refused: tuple[RefusedPartition, ...] = ()

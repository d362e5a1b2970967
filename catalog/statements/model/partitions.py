"""Statements about partitions, of schemes and of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.statements.model.base import TableStatement
from catalog.statements.terms import KeyCondition, PartitionValues


@dataclass(frozen=True, kw_only=True)
class AddSchemePartitions(TableStatement):
    """ALTER TABLE … ADD PARTITION ('…', …): bounds, values or groups."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SplitPartition(TableStatement):
    """ALTER TABLE … SPLIT PARTITION (id) INTO ('…', …)."""

    partition_id: int
    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DropSchemePartitions(TableStatement):
    """ALTER TABLE … DROP PARTITION (id, …) [WITH DATA]."""

    partition_ids: tuple[int, ...]
    with_data: bool = False


@dataclass(frozen=True, kw_only=True)
class MergePartitions(TableStatement):
    """ALTER TABLE … MERGE PARTITION (id, …)."""

    partition_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SetPartitionNumber(TableStatement):
    """ALTER TABLE … SET PARTITION_NUM n."""

    count: int


@dataclass(frozen=True, kw_only=True)
class PlaceFiles(TableStatement):
    """CALL calve.system.place('…')."""


@dataclass(frozen=True)
class PartitionToAdd:
    """A partition of ADD PARTITION."""

    values: PartitionValues
    location: str | None = None


@dataclass(frozen=True, kw_only=True)
class AddValuePartitions(TableStatement):
    """ALTER TABLE … ADD [IF NOT EXISTS] PARTITION (k='v', …) [LOCATION '…'] …."""

    partitions: tuple[PartitionToAdd, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class DropValuePartitions(TableStatement):
    """ALTER TABLE … DROP [IF EXISTS] PARTITION (k='v', …), …; each with the conditions on its partitions."""

    partitions: tuple[tuple[KeyCondition, ...], ...]
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionStatement(TableStatement):
    """A statement about one partition."""

    values: PartitionValues


@dataclass(frozen=True, kw_only=True)
class SetPartitionLocation(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET LOCATION."""

    location: str


@dataclass(frozen=True, kw_only=True)
class SetPartitionFormat(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET FILEFORMAT."""

    format: str


@dataclass(frozen=True, kw_only=True)
class SetPartitionProperties(PartitionStatement):
    """ALTER TABLE … PARTITION (…) SET PROPERTIES."""

    properties: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RenamePartition(PartitionStatement):
    """ALTER TABLE … PARTITION (…) RENAME TO PARTITION (…)."""

    new_values: PartitionValues


@dataclass(frozen=True, kw_only=True)
class ShowPartitions(TableStatement):
    """SHOW PARTITIONS.

    Attributes:
        values: Values of some keys, in Hive's notation; empty for all partitions.
        where: The filter as it was written; None for all.
    """

    values: PartitionValues = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExplainPartitions(TableStatement):
    """EXPLAIN PARTITIONS."""

    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class RepairTable(TableStatement):
    """MSCK REPAIR TABLE.

    Attributes:
        mode: `add` partitions whose folders exist, `drop` those whose folders do not exist, or `sync` for both.
    """

    mode: str = "add"

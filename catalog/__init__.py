"""The shared SQL catalog of a data lake's tables, partitions and partition indexes."""

from catalog.catalog import Catalog
from catalog.model import (
    AddResult,
    Column,
    Database,
    FileFormat,
    IndexDefinition,
    IndexState,
    NewPartition,
    Partition,
    PartitionIndex,
    PartitionState,
    Table,
)
from catalog.partitions.adding import OnInvalid

__all__ = [
    "AddResult",
    "Catalog",
    "Column",
    "Database",
    "FileFormat",
    "IndexDefinition",
    "IndexState",
    "NewPartition",
    "OnInvalid",
    "Partition",
    "PartitionIndex",
    "PartitionState",
    "Table",
]

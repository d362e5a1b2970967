"""The shared SQL catalog of a data lake's tables, partitions and partition indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalog.model import (
    AddResult,
    Column,
    Database,
    FileFormat,
    IndexDefinition,
    IndexState,
    LoadMode,
    NewPartition,
    OnInvalid,
    Partition,
    PartitionIndex,
    PartitionState,
    Table,
)
from catalog.model.batches import BatchChange, PartitionBatch, PartitionFailure, PartitionUpdate

if TYPE_CHECKING:
    from catalog.catalog import Catalog

__all__ = [
    "AddResult",
    "BatchChange",
    "Catalog",
    "Column",
    "Database",
    "FileFormat",
    "IndexDefinition",
    "IndexState",
    "LoadMode",
    "NewPartition",
    "OnInvalid",
    "Partition",
    "PartitionBatch",
    "PartitionFailure",
    "PartitionIndex",
    "PartitionState",
    "PartitionUpdate",
    "Table",
]


def __getattr__(name: str) -> Any:
    """Import `Catalog` on first use, because DAG files are parsed repeatedly and need no database code for that."""
    if name == "Catalog":
        from catalog.catalog import Catalog

        return Catalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

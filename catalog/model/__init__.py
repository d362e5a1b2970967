"""The objects of the catalog as plain values."""

from catalog.model.indexes import (
    MAINTAINED_INDEX_STATES,
    MAXIMUM_INDEXES,
    IndexDefinition,
    IndexState,
    OffendingPartition,
    PartitionIndex,
)
from catalog.model.loads import LoadMode, SetAsideFile
from catalog.model.partitions import (
    ENCRYPTED_PROPERTY,
    AddResult,
    NewPartition,
    OnInvalid,
    Partition,
    PartitionState,
    RepairMode,
    is_encrypted,
)
from catalog.model.tables import (
    GRACE,
    ICEBERG,
    PARTITION_ID,
    READABLE_FORMATS,
    Buckets,
    Column,
    Database,
    FileFormat,
    Table,
    TableKind,
    TableType,
)

__all__ = [
    "ENCRYPTED_PROPERTY",
    "GRACE",
    "ICEBERG",
    "MAINTAINED_INDEX_STATES",
    "MAXIMUM_INDEXES",
    "PARTITION_ID",
    "READABLE_FORMATS",
    "AddResult",
    "Buckets",
    "Column",
    "Database",
    "FileFormat",
    "IndexDefinition",
    "IndexState",
    "LoadMode",
    "NewPartition",
    "OffendingPartition",
    "OnInvalid",
    "Partition",
    "PartitionIndex",
    "PartitionState",
    "RepairMode",
    "SetAsideFile",
    "Table",
    "TableKind",
    "TableType",
    "is_encrypted",
]

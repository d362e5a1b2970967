"""The catalog's SQL tables. Times are milliseconds since 1970 UTC.

All are imported here, so that `Base.metadata` is complete.
"""

from catalog.storage.schema.base import Base
from catalog.storage.schema.entries import (
    ColumnStatisticsRow,
    DescriptorRow,
    FunctionRow,
    GivenAnswerRow,
    MetastoreLockRow,
    TableVersionRow,
)
from catalog.storage.schema.files import (
    DataFileRow,
    FormerFileRow,
    PurgedFolderRow,
    RevisionRow,
    SetAsideFileRow,
    SourceFileRow,
)
from catalog.storage.schema.iceberg import (
    IcebergFolderRow,
    IcebergNamespaceRow,
    IcebergPlacesRow,
    IcebergTableRow,
    SharedLocationRow,
)
from catalog.storage.schema.indexes import BackfillRangeRow, IndexItemRow, PartitionIndexRow
from catalog.storage.schema.operations import ApprovalRow, JobRow, OperationRow, SparkApplicationRow
from catalog.storage.schema.partitions import (
    FailedSampleRow,
    PartitionChangeRow,
    PartitionCheckRow,
    PartitionRow,
    PartitionVersionRow,
    QualityCheckRow,
    StagedPartitionRow,
    VersionState,
)
from catalog.storage.schema.tables import CatalogRow, DatabaseRow, ProposalRow, TableRow, new_version

__all__ = [
    "ApprovalRow",
    "BackfillRangeRow",
    "Base",
    "CatalogRow",
    "ColumnStatisticsRow",
    "DataFileRow",
    "DatabaseRow",
    "DescriptorRow",
    "FailedSampleRow",
    "FormerFileRow",
    "FunctionRow",
    "GivenAnswerRow",
    "IcebergFolderRow",
    "IcebergNamespaceRow",
    "IcebergPlacesRow",
    "IcebergTableRow",
    "IndexItemRow",
    "JobRow",
    "MetastoreLockRow",
    "OperationRow",
    "PartitionChangeRow",
    "PartitionCheckRow",
    "PartitionIndexRow",
    "PartitionRow",
    "PartitionVersionRow",
    "ProposalRow",
    "PurgedFolderRow",
    "QualityCheckRow",
    "RevisionRow",
    "SetAsideFileRow",
    "SharedLocationRow",
    "SourceFileRow",
    "SparkApplicationRow",
    "StagedPartitionRow",
    "TableRow",
    "TableVersionRow",
    "VersionState",
    "new_version",
]

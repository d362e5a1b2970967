"""The catalog's SQL tables. Times are milliseconds since 1970 UTC."""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, MetaData, text

from catalog.storage.declarations import Declaration, Mapped, mapped_column
from catalog.storage.texts import String, Text

BigId = BigInteger().with_variant(Integer, "sqlite")
"""SQLite generates row ids only for INTEGER columns."""


def new_version() -> int:
    """Return a random version, unique across tables: counters would restart with a reused id of a dropped table."""
    return secrets.randbits(62)


_NEVER_REUSED = {"sqlite_autoincrement": True}
"""Without this, SQLite reuses the highest id of deleted rows, which PostgreSQL's sequences never do.

Resumed work must find its own row by such an id, or none.
"""


def _only_rows(condition: str) -> dict[str, Any]:
    """Return the arguments of a partial index."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


class Base(Declaration):
    """Common metadata, with the same constraint names on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class CatalogRow(Base):
    """The catalog itself: one row.

    `identity` is random, and distinguishes the catalog's folders and data files by name from those of other catalogs.
    """

    __tablename__ = "calve_catalog"

    identity: Mapped[str] = mapped_column(String(16), primary_key=True)


class DatabaseRow(Base):
    """A database."""

    __tablename__ = "calve_database"
    __table_args__ = _NEVER_REUSED

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    location: Mapped[str] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    properties: Mapped[dict[str, Any]]


class TableRow(Base):
    """A table. Transactions that add partitions or change indexes are serialized by its row.

    `version` changes with each change of the table's definition or of one of its indexes (`Storage.lock_table`), which
    invalidates caches of these. `location_key` is the location as normalized by `catalog.files.locations.location_key`;
    null for views. `published_location` is that of the Iceberg metadata of a table with a partition scheme; null for
    other tables, and for tables of earlier versions until `calve init` publishes them. `delete_file_count` is the
    number of delete files in its current snapshot.
    """

    __tablename__ = "calve_table"
    __table_args__ = (
        Index("uq_calve_table_database_id_name", "database_id", "name", unique=True),
        Index("ix_calve_table_location_key", "location_key"),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    database_id: Mapped[int] = mapped_column(ForeignKey("calve_database.id"))
    name: Mapped[str] = mapped_column(String(255))
    columns: Mapped[list[Any]]
    partition_keys: Mapped[list[Any]]
    format: Mapped[str] = mapped_column(String(16))
    location: Mapped[str] = mapped_column(Text)
    properties: Mapped[dict[str, Any]]
    scheme: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    kind: Mapped[str] = mapped_column(String(16), default="managed", server_default="managed")
    table_type: Mapped[str] = mapped_column(String(16), default="HIVE", server_default="HIVE")
    description: Mapped[str | None] = mapped_column(Text)
    view_text: Mapped[str | None] = mapped_column(Text)
    buckets: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    dropped_columns: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    last_column_id: Mapped[int] = mapped_column(default=0, server_default="0")
    created_at_ms: Mapped[int]
    version: Mapped[int] = mapped_column(default=new_version, server_default="0")
    location_key: Mapped[bytes | None] = mapped_column(LargeBinary)
    published_location: Mapped[str | None] = mapped_column(Text)
    delete_file_count: Mapped[int] = mapped_column(default=0, server_default="0")


class PartitionRow(Base):
    """A partition.

    `identity` is a digest of the typed values: two spellings of the same values are one partition. `packed_values` has
    the strings (`catalog.model.partition_names.pack_values`). `location` is null for the Hive-style default.
    `properties` is JSON, including the partition's own format if it has one (`catalog.storage.properties`). There is no
    foreign key to the table: checking it takes longer than writing the row, and transactions that add partitions lock
    the table's row.
    """

    __tablename__ = "calve_partition"
    __table_args__ = (
        Index("uq_calve_partition_table_id_identity", "table_id", "identity", unique=True),
        Index("ix_calve_partition_table_id_id", "table_id", "id"),
        # Finds the owner of files in a folder; few partitions have a location other than the default.
        Index("ix_calve_partition_location", "location", **_only_rows("location IS NOT NULL")),
        # Partitions that no operation added have no entry, so they add no cost.
        Index(
            "ix_calve_partition_table_id_operation_number",
            "table_id",
            "operation_number",
            **_only_rows("operation_number IS NOT NULL"),
        ),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int] = mapped_column(BigId)
    identity: Mapped[bytes] = mapped_column(LargeBinary(16))
    packed_values: Mapped[str] = mapped_column(Text)
    # Collated by code point (revision 0012), so that the locations inside a folder are one range.
    location: Mapped[str | None] = mapped_column(Text)
    file_count: Mapped[int | None]
    row_count: Mapped[int | None]
    size_bytes: Mapped[int | None]
    properties: Mapped[str | None] = mapped_column(Text)
    is_quarantined: Mapped[bool]
    operation_number: Mapped[int | None]
    created_at_ms: Mapped[int]


class DataFileRow(Base):
    """A data file of a table with a partition scheme; readers see exactly the files that have a row.

    `path` is relative to the table's location. `partition_id` is -1 for the files of other engines that are not placed
    yet (`catalog.schemes.model.UNPLACED`). `statistics` is JSON (of `ColumnStatistics`, by column). `revision` is the
    first one that has the row as it is (`catalog.datafiles.history`). `operation_number` is 0 for a file of another
    engine, or null if it must be read by field ids. As for partitions, there is no foreign key to the table.
    """

    __tablename__ = "calve_data_file"
    __table_args__ = (
        Index("ix_calve_data_file_table_id_partition_id", "table_id", "partition_id"),
        _NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int]
    partition_id: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    row_count: Mapped[int]
    size_bytes: Mapped[int]
    statistics: Mapped[str] = mapped_column(Text)
    operation_number: Mapped[int | None]
    revision: Mapped[int] = mapped_column(server_default="0")


class FormerFileRow(Base):
    """A data file as it was in earlier revisions of its table: from `revision` until before `until_revision`.

    The other columns are those of `DataFileRow`, with its id as `file_id`. If both revisions are equal, the row only
    says that vacuum must delete the file. Such rows also have files that are in no other row, under their complete
    paths if they are not in the table's folder; a `table_id` of 0 is that of tables that were dropped by an earlier
    version.
    """

    __tablename__ = "calve_former_file"
    __table_args__ = (
        Index("ix_calve_former_file_table_id", "table_id", "until_revision", "number"),
        _NEVER_REUSED,
    )

    number: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int]
    file_id: Mapped[int]
    partition_id: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    row_count: Mapped[int]
    size_bytes: Mapped[int]
    statistics: Mapped[str] = mapped_column(Text)
    operation_number: Mapped[int | None]
    revision: Mapped[int]
    until_revision: Mapped[int]
    retired_at_ms: Mapped[int]


class RevisionRow(Base):
    """A state of a table's data files, and the Iceberg snapshot that has the same files.

    Several revisions have the same snapshot after a roll-back. `scheme` is as in `TableRow`.
    """

    __tablename__ = "calve_revision"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    revision: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    snapshot_id: Mapped[int]
    scheme: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    at_ms: Mapped[int]


class PartitionIndexRow(Base):
    """A partition index; unique names and the limit, which ignore FAILED ones, are checked under the table's lock."""

    __tablename__ = "calve_partition_index"
    __table_args__ = (Index("ix_calve_partition_index_table_id", "table_id"), _NEVER_REUSED)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int] = mapped_column(ForeignKey("calve_table.id"))
    name: Mapped[str] = mapped_column(String(255))
    keys: Mapped[list[Any]]
    state: Mapped[str] = mapped_column(String(16))
    failure_code: Mapped[str | None] = mapped_column(String(64))
    failure_detail: Mapped[str | None] = mapped_column(Text)
    offending: Mapped[list[Any]]
    created_at_ms: Mapped[int]
    failed_at_ms: Mapped[int | None]


class BackfillRangeRow(Base):
    """A range of partition ids, both ends inclusive, whose partitions have no items yet in a CREATING index.

    The ranges cover all partitions that existed when the index was created; later ones write their own items.
    """

    __tablename__ = "calve_backfill_range"

    index_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("calve_partition_index.id"), primary_key=True)
    first_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_id: Mapped[int]


class IndexItemRow(Base):
    """An index item. A foreign key to the partition is missing because enforcing it would need another B-tree."""

    __tablename__ = "calve_index_item"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    index_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    key: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    partition_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)


class OperationRow(Base):
    """A journaled change of the catalog and its files.

    `table_id` is its table; null until the table exists. `table_name` is the table's name when the operation started.
    `reported_at_ms` is when its outcome was reported to the outside (`catalog.operations.outcomes`).
    """

    __tablename__ = "calve_operation"
    __table_args__ = (
        # Of each kind that is reported, few operations are not.
        Index("ix_calve_operation_unreported", "kind", "number", **_only_rows("reported_at_ms IS NULL")),
        Index("ix_calve_operation_table_name_state", "table_name", "state"),
        Index("ix_calve_operation_table_id_state", "table_id", "state"),
        _NEVER_REUSED,
    )

    number: Mapped[int] = mapped_column(BigId, primary_key=True)
    id: Mapped[str] = mapped_column(String(512), unique=True)
    kind: Mapped[str] = mapped_column(String(32))
    table_id: Mapped[int | None]
    table_name: Mapped[str] = mapped_column(String(512))
    is_exclusive: Mapped[bool]
    request: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16))
    progress_done: Mapped[int]
    progress_total: Mapped[int | None]
    progress_note: Mapped[str | None] = mapped_column(Text)
    report: Mapped[dict[str, Any]]
    failure_code: Mapped[str | None] = mapped_column(String(64))
    failure_detail: Mapped[str | None] = mapped_column(Text)
    requested_by: Mapped[str | None] = mapped_column(String(512))
    created_at_ms: Mapped[int]
    heartbeat_at_ms: Mapped[int]
    reported_at_ms: Mapped[int | None]


class JobRow(Base):
    """The latest attempt at one step of an operation.

    `request` is JSON text, because databases do not keep the order of JSON's fields; NULL for an attempt in the process
    of its caller, and for the attempts of earlier versions, whose `started_at_ms` is NULL, too.
    """

    __tablename__ = "calve_job"

    operation_number: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("calve_operation.number", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    started_at_ms: Mapped[int | None]
    heartbeat_at_ms: Mapped[int]
    request: Mapped[str | None] = mapped_column(Text)
    result: Mapped[dict[str, Any]]
    error_class: Mapped[str | None] = mapped_column(String(128))
    error_message: Mapped[str | None] = mapped_column(Text)
    log_path: Mapped[str | None] = mapped_column(Text)
    host: Mapped[str | None] = mapped_column(String(255))
    spark_application: Mapped[str | None] = mapped_column(String(128))
    spark_ui: Mapped[str | None] = mapped_column(Text)


class SparkApplicationRow(Base):
    """A Spark application that accepts jobs (`catalog.operations.applications`), and the job that it runs, if any."""

    __tablename__ = "calve_spark_application"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    key: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(255))
    log_path: Mapped[str] = mapped_column(Text)
    started_at_ms: Mapped[int]
    operation_id: Mapped[str | None] = mapped_column(String(512))
    step: Mapped[str | None] = mapped_column(String(64))
    attempt: Mapped[int | None]
    script: Mapped[str | None] = mapped_column(String(64))


class SourceFileRow(Base):
    """A loaded raw file. It has no foreign key to the table, which is dropped before its rows are deleted."""

    __tablename__ = "calve_source_file"

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    path: Mapped[str] = mapped_column(Text, primary_key=True)
    size_bytes: Mapped[int]
    modified_at_ms: Mapped[int]
    operation_number: Mapped[int]


class SetAsideFileRow(Base):
    """A raw file that a load has set aside (`catalog.loading.set_aside`), without a foreign key like `SourceFileRow`.

    `settings_digest` is that of the settings with which it was read. `bad_row_count` is NULL if it cannot be read.
    """

    __tablename__ = "calve_set_aside_file"
    __table_args__ = (Index("ix_calve_set_aside_file_operation_number", "operation_number"),)

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    path: Mapped[str] = mapped_column(Text, primary_key=True)
    size_bytes: Mapped[int]
    modified_at_ms: Mapped[int]
    settings_digest: Mapped[str] = mapped_column(String(64))
    reason: Mapped[str] = mapped_column(Text)
    bad_row_count: Mapped[int | None]
    operation_number: Mapped[int]
    set_aside_at_ms: Mapped[int]


class PartitionChangeRow(Base):
    """Partitions that were changed or dropped and are to be announced (`catalog.operations.changes`).

    `partitions` is JSON: `{"range": [first, last]}` or `{"ids": […]}` of changed ones, `{"names": […], "table": …}` of
    dropped ones and of batches that `claimed_by` announces, which have no `operation_number`. Records of former
    versions have `{"values": […]}` of dropped ones, as packed values.
    """

    __tablename__ = "calve_partition_change"
    __table_args__ = (Index("ix_calve_partition_change_claimed_by", "claimed_by"), _NEVER_REUSED)

    number: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int]
    partitions: Mapped[str] = mapped_column(Text)
    is_dropped: Mapped[bool]
    operation_number: Mapped[int | None]
    changed_at_ms: Mapped[int]
    claimed_by: Mapped[str | None] = mapped_column(String(512))


class StagedPartitionRow(Base):
    """The target folder of a partition in a load that is being published (`catalog.partitions.staged`).

    `attempt` staged the files; `packed_values` and `identity` are as in `PartitionRow`. With `is_new`, the load adds
    the partition; `refused` is the reason why it is skipped. `partition_id` is that of an existing partition that gets
    the files. The commit deletes these rows.
    """

    __tablename__ = "calve_staged_partition"
    __table_args__ = (
        Index("ix_calve_staged_partition_table_id_identity", "table_id", "identity"),
        {"sqlite_with_rowid": False},
    )

    operation_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    identity: Mapped[bytes] = mapped_column(LargeBinary(16), primary_key=True)
    table_id: Mapped[int]
    packed_values: Mapped[str] = mapped_column(Text)
    location: Mapped[str] = mapped_column(Text)
    is_new: Mapped[bool]
    refused: Mapped[str | None] = mapped_column(Text)
    partition_id: Mapped[int | None]


class VersionState(StrEnum):
    """The states of a version (`catalog.partitions.versions`)."""

    CURRENT = "current"
    SETTLED = "settled"
    REPLACED = "replaced"


class PartitionVersionRow(Base):
    """A folder with the files that have replaced those of a partition (`catalog.partitions.versions`).

    `location` is that folder, and `home` the folder to which vacuum copies the files; with `owns_home`, the files there
    were those of the partition. `packed_values` and `identity` are those that the partition had at the replacement.
    """

    __tablename__ = "calve_partition_version"
    __table_args__ = (
        Index("ix_calve_partition_version_table_id_identity", "table_id", "identity"),
        Index("uq_calve_partition_version_location", "location", unique=True),
        _NEVER_REUSED,
    )

    number: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int]
    identity: Mapped[bytes] = mapped_column(LargeBinary(16))
    packed_values: Mapped[str] = mapped_column(Text)
    location: Mapped[str] = mapped_column(Text)
    home: Mapped[str] = mapped_column(Text)
    owns_home: Mapped[bool]
    state: Mapped[str] = mapped_column(String(16))
    changed_at_ms: Mapped[int]


class PurgedFolderRow(Base):
    """A folder that a purge deletes, until its operation is CLEANED (`catalog.tables.purged_folders`).

    `location_key` is as in `TableRow`; for a location that is too long, that of a folder around it.
    """

    __tablename__ = "calve_purged_folder"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    location_key: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    operation_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    location: Mapped[str] = mapped_column(Text)


class ApprovalRow(Base):
    """A person's approval of a deletion. `operation_id` is the run's id, which may have no row."""

    __tablename__ = "calve_approval"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    operation_id: Mapped[str] = mapped_column(String(512), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    approved_by: Mapped[str | None] = mapped_column(String(512))
    approved_at_ms: Mapped[int]


class PartitionCheckRow(Base):
    """The latest quality check of a partition.

    `measures` is what the check has counted, by name; null for checks of earlier versions. `release_number` is the
    operation by which a person has released a partition that failed, with a reason; null without one.
    """

    __tablename__ = "calve_partition_check"
    __table_args__ = (
        # Few partitions fail, so that those of a table are found without reading all of them.
        Index("ix_calve_partition_check_failed", "partition_id", **_only_rows("NOT passed")),
    )

    partition_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("calve_partition.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    operation_number: Mapped[int]
    passed: Mapped[bool]
    failures: Mapped[list[Any]]
    checked_at_ms: Mapped[int]
    measures: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    release_number: Mapped[int | None]


class FailedSampleRow(Base):
    """The first rows of a partition that failed a check of its latest quality check, as text.

    They are values of the data: only rules that allow it have them, for as long as pages of checks are kept.
    """

    __tablename__ = "calve_failed_sample"
    __table_args__ = (Index("ix_calve_failed_sample_checked_at_ms", "checked_at_ms"),)

    partition_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("calve_partition.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    check_name: Mapped[str] = mapped_column(Text)
    columns: Mapped[list[Any]]
    rows: Mapped[list[Any]]
    checked_at_ms: Mapped[int]


class QualityCheckRow(Base):
    """The quality check of the partitions of an operation, kept for a time (`catalog.loading.quality_results`).

    It outlives its operation, whose `operation_id` is kept with it, and has no foreign key to the table: checks of
    dropped tables are removed after the same time. `failures` has the first ones as strings; `page` is a path or URI.
    """

    __tablename__ = "calve_quality_check"
    __table_args__ = (
        Index("ix_calve_quality_check_of_table", "table_id", "checked_at_ms", "operation_number"),
        Index("ix_calve_quality_check_checked_at_ms", "checked_at_ms"),
    )

    operation_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    operation_id: Mapped[str] = mapped_column(String(512))
    table_id: Mapped[int]
    checked_at_ms: Mapped[int]
    checked: Mapped[int]
    passed: Mapped[int]
    failed: Mapped[int]
    released: Mapped[int]
    row_count: Mapped[int | None]
    failures: Mapped[list[Any]]
    page: Mapped[str | None] = mapped_column(Text)


class ProposalRow(Base):
    """A proposed change of a table's partitions, kept until the next proposals for the table.

    `table_name` is the table's name when it was made, which is in `statement` and `request`, too.
    """

    __tablename__ = "calve_proposal"

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    table_name: Mapped[str] = mapped_column(String(512))
    statement: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    dag: Mapped[str] = mapped_column(String(255))
    request: Mapped[dict[str, Any]]
    proposed_at_ms: Mapped[int]


class IcebergTableRow(Base):
    """The metadata location of an Iceberg table: a row of PyIceberg's SqlCatalog and of Iceberg's JDBC catalog.

    Both update it when they commit. Source: PyIceberg 0.12, `pyiceberg/catalog/sql.py`.
    """

    __tablename__ = "iceberg_tables"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str | None] = mapped_column(String(1000))
    previous_metadata_location: Mapped[str | None] = mapped_column(String(1000))
    iceberg_type: Mapped[str | None] = mapped_column(String(5))


class IcebergNamespaceRow(Base):
    """A property of a namespace of Iceberg tables; Calve's own databases have none here."""

    __tablename__ = "iceberg_namespace_properties"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_value: Mapped[str] = mapped_column(String(1000))


class SharedLocationRow(Base):
    """A location where an Iceberg table has data files that also belong to another table.

    `location` is normalized by `catalog.files.locations.comparable`. It is valid only while the Iceberg table exists.
    """

    __tablename__ = "calve_shared_location"

    location: Mapped[str] = mapped_column(String(1000), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)

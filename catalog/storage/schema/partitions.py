"""The SQL tables of partitions and of their changes, versions and checks."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId, only_rows
from catalog.storage.texts import String, Text


class PartitionRow(Base):
    """A partition.

    `identity` is a digest of the typed values: two spellings of the same values are one partition. `packed_values` has
    the strings (`catalog.model.partition_names.pack_values`). `location` is null for the Hive-style default.
    `properties` is JSON, including the partition's own format if it has one (`catalog.storage.properties`). There is no
    foreign key to the table: checking it takes longer than writing the row, and transactions that add partitions lock
    the table's row. `descriptor_id` is that of a storage descriptor unlike the table's (`DescriptorRow`).
    """

    __tablename__ = "calve_partition"
    __table_args__ = (
        Index("uq_calve_partition_table_id_identity", "table_id", "identity", unique=True),
        Index("ix_calve_partition_table_id_id", "table_id", "id"),
        # Finds the owner of files in a folder; few partitions have a location other than the default.
        Index("ix_calve_partition_location", "location", **only_rows("location IS NOT NULL")),
        # Partitions that no operation added have no entry, so they add no cost.
        Index(
            "ix_calve_partition_table_id_operation_number",
            "table_id",
            "operation_number",
            **only_rows("operation_number IS NOT NULL"),
        ),
        NEVER_REUSED,
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
    descriptor_id: Mapped[int | None] = mapped_column(BigInteger)


class PartitionChangeRow(Base):
    """Partitions that were changed or dropped and are to be announced (`catalog.operations.changes`).

    `partitions` is JSON: `{"range": [first, last]}` or `{"ids": […]}` of changed ones, `{"names": […], "table": …}` of
    dropped ones and of batches that `claimed_by` announces, which have no `operation_number`. Records of former
    versions have `{"values": […]}` of dropped ones, as packed values.
    """

    __tablename__ = "calve_partition_change"
    __table_args__ = (Index("ix_calve_partition_change_claimed_by", "claimed_by"), NEVER_REUSED)

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
    `replaced` records the files that were in `home` then (`catalog.partitions.folder_files`), also those of others,
    without `owns_home`; null if it is unknown.
    """

    __tablename__ = "calve_partition_version"
    __table_args__ = (
        Index("ix_calve_partition_version_home", "home"),
        Index("ix_calve_partition_version_table_id_identity", "table_id", "identity"),
        Index("uq_calve_partition_version_location", "location", unique=True),
        NEVER_REUSED,
    )

    number: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int]
    identity: Mapped[bytes] = mapped_column(LargeBinary(16))
    packed_values: Mapped[str] = mapped_column(Text)
    location: Mapped[str] = mapped_column(Text)
    home: Mapped[str] = mapped_column(Text)
    owns_home: Mapped[bool]
    replaced: Mapped[bytes | None] = mapped_column(LargeBinary)
    state: Mapped[str] = mapped_column(String(16))
    changed_at_ms: Mapped[int]


class PartitionCheckRow(Base):
    """The latest quality check of a partition.

    `measures` is what the check has counted, by name; null for checks of earlier versions. `release_number` is the
    operation by which a person has released a partition that failed, with a reason; null without one.
    """

    __tablename__ = "calve_partition_check"
    __table_args__ = (
        # Few partitions fail, so that those of a table are found without reading all of them.
        Index("ix_calve_partition_check_failed", "partition_id", **only_rows("NOT passed")),
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

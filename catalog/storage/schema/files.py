"""The SQL tables of data files, of loaded files, and of folders to delete."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Index, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId
from catalog.storage.texts import String, Text


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
        # Finds the files that an engine has removed. A B-tree would have all paths again, and none that are very long.
        Index("ix_calve_data_file_path", "path", postgresql_using="hash"),
        NEVER_REUSED,
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
        NEVER_REUSED,
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


class PurgedFolderRow(Base):
    """A folder that a purge deletes, until its operation is CLEANED (`catalog.tables.purged_folders`).

    `location_key` is as in `TableRow`; for a location that is too long, that of a folder around it.
    """

    __tablename__ = "calve_purged_folder"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    location_key: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    operation_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    location: Mapped[str] = mapped_column(Text)

"""The SQL tables of the catalog itself, its databases, and its tables."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId
from catalog.storage.texts import String, Text


def new_version() -> int:
    """Return a random version, unique across tables: counters would restart with a reused id of a dropped table."""
    return secrets.randbits(62)


class CatalogRow(Base):
    """The catalog itself: one row.

    `identity` is random, and distinguishes the catalog's folders and data files by name from those of other catalogs.
    """

    __tablename__ = "calve_catalog"

    identity: Mapped[str] = mapped_column(String(16), primary_key=True)


class DatabaseRow(Base):
    """A database. `details` is what the metastores' protocols keep of it besides; null for Calve's defaults."""

    __tablename__ = "calve_database"
    __table_args__ = NEVER_REUSED

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    location: Mapped[str] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    properties: Mapped[dict[str, Any]]
    details: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class TableRow(Base):
    """A table. Transactions that add partitions or change indexes are serialized by its row.

    `version` changes with each change of the table's definition or of one of its indexes (`Storage.lock_table`), which
    invalidates caches of these. `location_key` is the location as normalized by `catalog.files.locations.location_key`;
    null for views. `published_location` is that of the Iceberg metadata of a table with a partition scheme; null for
    other tables, and for tables of earlier versions until `calve init` publishes them. `delete_file_count` is the
    number of delete files in its current snapshot. `details` is what the metastores' protocols keep of it besides, such
    as owner, SerDe and sort columns; null for the defaults of its format.
    """

    __tablename__ = "calve_table"
    __table_args__ = (
        Index("uq_calve_table_database_id_name", "database_id", "name", unique=True),
        Index("ix_calve_table_location_key", "location_key"),
        NEVER_REUSED,
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
    details: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


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

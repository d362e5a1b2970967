"""The SQL tables of partition indexes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId
from catalog.storage.texts import String, Text


class PartitionIndexRow(Base):
    """A partition index; unique names and the limit, which ignore FAILED ones, are checked under the table's lock."""

    __tablename__ = "calve_partition_index"
    __table_args__ = (Index("ix_calve_partition_index_table_id", "table_id"), NEVER_REUSED)

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

"""The SQL tables of what metastores keep and Calve itself does not use: descriptors, statistics, functions, locks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId
from catalog.storage.texts import String, Text


class DescriptorRow(Base):
    """A storage descriptor that differs from that of its table, shared by the partitions that have it.

    `digest` is that of `descriptor`, which is JSON without the location.
    """

    __tablename__ = "calve_descriptor"
    __table_args__ = (
        Index("uq_calve_descriptor_table_id_digest", "table_id", "digest", unique=True),
        NEVER_REUSED,
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    table_id: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[bytes] = mapped_column(LargeBinary(16))
    descriptor: Mapped[str] = mapped_column(Text)


class ColumnStatisticsRow(Base):
    """The statistics that an engine has stored about a column of a table or of a partition.

    `partition_id` is 0 for those of the whole table.
    """

    __tablename__ = "calve_column_statistics"

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    partition_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    column_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    statistics: Mapped[dict[str, Any]]
    analysed_at_ms: Mapped[int]


class FunctionRow(Base):
    """A function of Hive that an engine has registered; Calve calls none."""

    __tablename__ = "calve_function"
    __table_args__ = (Index("uq_calve_function_database_id_name", "database_id", "name", unique=True), NEVER_REUSED)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    database_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("calve_database.id"))
    name: Mapped[str] = mapped_column(String(255))
    details: Mapped[dict[str, Any]]
    created_at_ms: Mapped[int]


class MetastoreLockRow(Base):
    """A lock that a client of the Hive Metastore protocol holds or waits for.

    `components` is a list of {database, table, partition, type}. A lock whose heartbeat is too old is free again.
    """

    __tablename__ = "calve_metastore_lock"
    __table_args__ = NEVER_REUSED

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    holder: Mapped[str] = mapped_column(String(255))
    host: Mapped[str] = mapped_column(String(255))
    components: Mapped[list[Any]]
    acquired_at_ms: Mapped[int | None]
    heartbeat_at_ms: Mapped[int]


class TableVersionRow(Base):
    """A former definition of a table, as Glue's table versions show it."""

    __tablename__ = "calve_table_version"

    table_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    entry: Mapped[dict[str, Any]]
    replaced_at_ms: Mapped[int]


class GivenAnswerRow(Base):
    """The answer to a request with an idempotency key, which is repeated if the request is.

    `digest` is that of the request: the same key with another request is refused.
    """

    __tablename__ = "calve_given_answer"
    __table_args__ = (Index("ix_calve_given_answer_given_at_ms", "given_at_ms"),)

    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    status: Mapped[int | None]
    answer: Mapped[str | None] = mapped_column(Text)
    given_at_ms: Mapped[int]

"""The SQL tables of operations, of the jobs that run them, and of approvals."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index

from catalog.storage.declarations import Mapped, mapped_column
from catalog.storage.schema.base import NEVER_REUSED, Base, BigId, only_rows
from catalog.storage.texts import String, Text


class OperationRow(Base):
    """A journaled change of the catalog and its files.

    `table_id` is its table; null until the table exists. `table_name` is the table's name when the operation started.
    `reported_at_ms` is when its outcome was reported to the outside (`catalog.operations.outcomes`).
    """

    __tablename__ = "calve_operation"
    __table_args__ = (
        # Of each kind that is reported, few operations are not.
        Index("ix_calve_operation_unreported", "kind", "number", **only_rows("reported_at_ms IS NULL")),
        Index("ix_calve_operation_table_name_state", "table_name", "state"),
        Index("ix_calve_operation_table_id_state", "table_id", "state"),
        NEVER_REUSED,
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


class ApprovalRow(Base):
    """A person's approval of a deletion. `operation_id` is the run's id, which may have no row."""

    __tablename__ = "calve_approval"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - read by SQLAlchemy

    operation_id: Mapped[str] = mapped_column(String(512), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    approved_by: Mapped[str | None] = mapped_column(String(512))
    approved_at_ms: Mapped[int]

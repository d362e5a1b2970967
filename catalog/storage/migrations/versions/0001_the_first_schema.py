"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    _create_tables()
    _create_partitions()
    _create_indexes()
    _create_operations()


def _create_tables() -> None:
    op.create_table(
        "calve_database",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_database")),
        sa.UniqueConstraint("name", name=op.f("uq_calve_database_name")),
    )
    op.create_table(
        "calve_table",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("database_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("partition_keys", sa.JSON(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["database_id"], ["calve_database.id"], name=op.f("fk_calve_table_database_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_table")),
    )
    with op.batch_alter_table("calve_table", schema=None) as batch_op:
        batch_op.create_index("uq_calve_table_database_id_name", ["database_id", "name"], unique=True)
    op.create_table(
        "calve_source_file",
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("modified_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("operation_number", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["calve_table.id"], name=op.f("fk_calve_source_file_table_id")),
        sa.PrimaryKeyConstraint("table_id", "path", name=op.f("pk_calve_source_file")),
    )


def _create_partitions() -> None:
    op.create_table(
        "calve_partition",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("identity", sa.LargeBinary(length=16), nullable=False),
        sa.Column("packed_values", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("file_count", sa.BigInteger(), nullable=True),
        sa.Column("row_count", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("properties", sa.Text(), nullable=True),
        sa.Column("is_quarantined", sa.Boolean(), nullable=False),
        sa.Column("operation_number", sa.BigInteger(), nullable=True),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["calve_table.id"], name=op.f("fk_calve_partition_table_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_partition")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("calve_partition", schema=None) as batch_op:
        batch_op.create_index("ix_calve_partition_table_id_id", ["table_id", "id"], unique=False)
        batch_op.create_index("uq_calve_partition_table_id_identity", ["table_id", "identity"], unique=True)
    op.create_table(
        "calve_partition_check",
        sa.Column("partition_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("operation_number", sa.BigInteger(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("failures", sa.JSON(), nullable=False),
        sa.Column("checked_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["partition_id"],
            ["calve_partition.id"],
            name=op.f("fk_calve_partition_check_partition_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("partition_id", name=op.f("pk_calve_partition_check")),
    )


def _create_indexes() -> None:
    op.create_table(
        "calve_partition_index",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("keys", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("high_water_mark", sa.BigInteger(), nullable=False),
        sa.Column("failure_code", sa.String(length=64), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("offending", sa.JSON(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["calve_table.id"], name=op.f("fk_calve_partition_index_table_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_partition_index")),
    )
    with op.batch_alter_table("calve_partition_index", schema=None) as batch_op:
        batch_op.create_index("ix_calve_partition_index_table_id", ["table_id"], unique=False)
    op.create_table(
        "calve_index_item",
        sa.Column("index_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("partition_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("index_id", "key", "partition_id", name=op.f("pk_calve_index_item")),
        sqlite_with_rowid=False,
    )


def _create_operations() -> None:
    op.create_table(
        "calve_operation",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=512), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("table_name", sa.String(length=512), nullable=False),
        sa.Column("is_exclusive", sa.Boolean(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("progress_done", sa.BigInteger(), nullable=False),
        sa.Column("progress_total", sa.BigInteger(), nullable=True),
        sa.Column("progress_note", sa.Text(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("failure_code", sa.String(length=64), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.String(length=512), nullable=True),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_calve_operation")),
        sa.UniqueConstraint("id", name=op.f("uq_calve_operation_id")),
    )
    with op.batch_alter_table("calve_operation", schema=None) as batch_op:
        batch_op.create_index("ix_calve_operation_table_name_state", ["table_name", "state"], unique=False)
    op.create_table(
        "calve_job",
        sa.Column("operation_number", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("heartbeat_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("error_class", sa.String(length=128), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("log_path", sa.Text(), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(
            ["operation_number"],
            ["calve_operation.number"],
            name=op.f("fk_calve_job_operation_number"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("operation_number", "step", name=op.f("pk_calve_job")),
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table("calve_partition_check")
    op.drop_table("calve_source_file")
    with op.batch_alter_table("calve_partition_index", schema=None) as batch_op:
        batch_op.drop_index("ix_calve_partition_index_table_id")

    op.drop_table("calve_partition_index")
    with op.batch_alter_table("calve_partition", schema=None) as batch_op:
        batch_op.drop_index("uq_calve_partition_table_id_identity")
        batch_op.drop_index("ix_calve_partition_table_id_id")

    op.drop_table("calve_partition")
    with op.batch_alter_table("calve_table", schema=None) as batch_op:
        batch_op.drop_index("uq_calve_table_database_id_name")

    op.drop_table("calve_table")
    op.drop_table("calve_job")
    with op.batch_alter_table("calve_operation", schema=None) as batch_op:
        batch_op.drop_index("ix_calve_operation_table_name_state")

    op.drop_table("calve_operation")
    op.drop_table("calve_index_item")
    op.drop_table("calve_database")

"""Keep proposals for tables, samples of failing rows, releases by persons, and which outcomes were reported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_proposal",
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("table_name", sa.String(512), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("dag", sa.String(255), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("proposed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "position", name=op.f("pk_calve_proposal")),
    )
    op.create_table(
        "calve_failed_sample",
        sa.Column("partition_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("check_name", sa.Text(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("rows", sa.JSON(), nullable=False),
        sa.Column("checked_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["partition_id"],
            ["calve_partition.id"],
            name=op.f("fk_calve_failed_sample_partition_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("partition_id", "position", name=op.f("pk_calve_failed_sample")),
    )
    op.create_index("ix_calve_failed_sample_checked_at_ms", "calve_failed_sample", ["checked_at_ms"])
    op.add_column("calve_partition_check", sa.Column("release_number", sa.BigInteger(), nullable=True))
    op.add_column("calve_operation", sa.Column("reported_at_ms", sa.BigInteger(), nullable=True))
    # Nobody expects reports about the past.
    op.execute("UPDATE calve_operation SET reported_at_ms = heartbeat_at_ms")
    condition = sa.text("reported_at_ms IS NULL")
    op.create_index(
        "ix_calve_operation_unreported",
        "calve_operation",
        ["kind", "number"],
        postgresql_where=condition,
        sqlite_where=condition,
    )


def downgrade() -> None:
    """Take the revision back; the samples are lost, and the proposals, which the advisor's next run makes again."""
    op.drop_index("ix_calve_operation_unreported", table_name="calve_operation")
    op.drop_column("calve_operation", "reported_at_ms")
    op.drop_column("calve_partition_check", "release_number")
    op.drop_index("ix_calve_failed_sample_checked_at_ms", table_name="calve_failed_sample")
    op.drop_table("calve_failed_sample")
    op.drop_table("calve_proposal")

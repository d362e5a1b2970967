"""Keep the history of quality checks, and what they have counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_quality_check",
        sa.Column("operation_number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("operation_id", sa.String(512), nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("checked_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("checked", sa.BigInteger(), nullable=False),
        sa.Column("passed", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("released", sa.BigInteger(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=True),
        sa.Column("failures", sa.JSON(), nullable=False),
        sa.Column("page", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("operation_number", name=op.f("pk_calve_quality_check")),
    )
    newest = ["table_id", "checked_at_ms", "operation_number"]
    op.create_index("ix_calve_quality_check_of_table", "calve_quality_check", newest)
    op.create_index("ix_calve_quality_check_checked_at_ms", "calve_quality_check", ["checked_at_ms"])
    op.add_column("calve_partition_check", sa.Column("measures", sa.JSON(none_as_null=True), nullable=True))
    condition = sa.text("NOT passed")
    op.create_index(
        "ix_calve_partition_check_failed",
        "calve_partition_check",
        ["partition_id"],
        postgresql_where=condition,
        sqlite_where=condition,
    )


def downgrade() -> None:
    """Take the revision back; the history of checks is lost, and what they have counted."""
    op.drop_index("ix_calve_partition_check_failed", table_name="calve_partition_check")
    op.drop_column("calve_partition_check", "measures")
    op.drop_index("ix_calve_quality_check_checked_at_ms", table_name="calve_quality_check")
    op.drop_index("ix_calve_quality_check_of_table", table_name="calve_quality_check")
    op.drop_table("calve_quality_check")

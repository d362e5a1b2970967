"""Record the partitions that were changed, until they are announced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_partition_change",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("is_dropped", sa.Boolean(), nullable=False),
        sa.Column("operation_number", sa.BigInteger(), nullable=True),
        sa.Column("changed_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("claimed_by", sa.String(512), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_calve_partition_change")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_calve_partition_change_claimed_by", "calve_partition_change", ["claimed_by"])


def downgrade() -> None:
    """Take the revision back; changes that are not announced yet are forgotten."""
    op.drop_index("ix_calve_partition_change_claimed_by", table_name="calve_partition_change")
    op.drop_table("calve_partition_change")

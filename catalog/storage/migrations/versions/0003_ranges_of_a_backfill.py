"""Store the remaining ranges of an index build, so that it continues after an interruption."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision; running builds start again."""
    with op.batch_alter_table("calve_partition_index") as index:
        index.add_column(sa.Column("failed_at_ms", sa.BigInteger(), nullable=True))
    op.execute("UPDATE calve_partition_index SET failed_at_ms = created_at_ms WHERE state = 'FAILED'")
    op.create_table(
        "calve_backfill_range",
        sa.Column("index_id", sa.BigInteger(), nullable=False),
        sa.Column("first_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["index_id"], ["calve_partition_index.id"], name=op.f("fk_calve_backfill_range_index_id")
        ),
        sa.PrimaryKeyConstraint("index_id", "first_id", name=op.f("pk_calve_backfill_range")),
    )
    op.execute(
        "INSERT INTO calve_backfill_range (index_id, first_id, last_id) "
        "SELECT id, 0, high_water_mark FROM calve_partition_index WHERE state = 'CREATING'"
    )
    op.drop_column("calve_partition_index", "high_water_mark")


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table("calve_backfill_range")
    with op.batch_alter_table("calve_partition_index") as index:
        index.add_column(sa.Column("high_water_mark", sa.BigInteger(), nullable=False, server_default="0"))
        index.drop_column("failed_at_ms")
    op.execute(
        "UPDATE calve_partition_index SET high_water_mark = COALESCE("
        "(SELECT max(id) FROM calve_partition WHERE table_id = calve_partition_index.table_id), 0)"
    )

"""What Hive's tables have besides: a description, a kind, buckets, the text of a view; and renamed partitions.

A partition's own format needs no column of its own, which each of a million partitions would be read with: it is in
the text of the properties (`catalog.storage.properties`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_table", sa.Column("kind", sa.String(16), nullable=False, server_default="managed"))
    op.add_column("calve_table", sa.Column("description", sa.Text(), nullable=True))
    op.add_column("calve_table", sa.Column("view_text", sa.Text(), nullable=True))
    op.add_column("calve_table", sa.Column("buckets", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "calve_renamed_partition",
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.LargeBinary(16), nullable=False),
        sa.Column("partition_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "identity", name=op.f("pk_calve_renamed_partition")),
    )


def downgrade() -> None:
    """Take the revision back; views go, which would be taken for tables."""
    op.drop_table("calve_renamed_partition")
    op.execute("DELETE FROM calve_table WHERE kind = 'view'")
    with op.batch_alter_table("calve_table") as table:
        for column in ("buckets", "view_text", "description", "kind"):
            table.drop_column(column)

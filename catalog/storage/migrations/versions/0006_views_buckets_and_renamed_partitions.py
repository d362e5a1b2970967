"""Add attributes of Hive's tables: a comment, a kind, buckets, the text of a view; and renamed partitions.

The format of a partition is stored among its properties (`catalog.storage.properties`), not in a column, which all
reads of partitions would include.
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
    """Take the revision back; views are deleted, because they would be taken for tables."""
    op.drop_table("calve_renamed_partition")
    op.execute("DELETE FROM calve_table WHERE kind = 'view'")
    with op.batch_alter_table("calve_table") as table:
        for column in ("buckets", "view_text", "description", "kind"):
            table.drop_column(column)

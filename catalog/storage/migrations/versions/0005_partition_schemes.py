"""Add partition schemes, and the data files of tables with one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_table", sa.Column("scheme", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "calve_data_file",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("partition_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("statistics", sa.Text(), nullable=False),
        sa.Column("operation_number", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_data_file")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_calve_data_file_table_id_partition_id", "calve_data_file", ["table_id", "partition_id"])
    op.create_table(
        "calve_retired_file",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("table_name", sa.String(512), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("retired_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_retired_file")),
    )
    op.create_index("ix_calve_retired_file_retired_at_ms", "calve_retired_file", ["retired_at_ms"])


def downgrade() -> None:
    """Take the revision back; tables with a scheme lose the records of their files."""
    op.drop_table("calve_retired_file")
    op.drop_table("calve_data_file")
    with op.batch_alter_table("calve_table") as table:
        table.drop_column("scheme")

"""Record source files that loads have set aside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_set_aside_file",
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("modified_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("settings_digest", sa.String(64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("bad_row_count", sa.BigInteger(), nullable=True),
        sa.Column("operation_number", sa.BigInteger(), nullable=False),
        sa.Column("set_aside_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "path", name=op.f("pk_calve_set_aside_file")),
    )
    op.create_index("ix_calve_set_aside_file_operation_number", "calve_set_aside_file", ["operation_number"])


def downgrade() -> None:
    """Take the revision back; the files are tried again by the next loads."""
    op.drop_index("ix_calve_set_aside_file_operation_number", table_name="calve_set_aside_file")
    op.drop_table("calve_set_aside_file")

"""Add approvals of deletions.

The downgrade deletes them: unfinished deletions must be approved again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_TABLE = "calve_approval"


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        sa.Column("operation_id", sa.String(512), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("approved_by", sa.String(512)),
        sa.Column("approved_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "key", name=f"pk_{_TABLE}"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table(_TABLE)

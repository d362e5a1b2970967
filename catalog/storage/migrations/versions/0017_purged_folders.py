"""Add the folders that unfinished purges delete.

The downgrade deletes them: run vacuum first, which finishes the purges.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLE = "calve_purged_folder"


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        sa.Column("location_key", sa.LargeBinary(), nullable=False),
        sa.Column("operation_number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("location_key", "operation_number", name=f"pk_{_TABLE}"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table(_TABLE)

"""Add the destinations of each partition's files for loads that are being published.

The downgrade deletes them: finish or withdraw running loads first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_TABLE = "calve_staged_partition"


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        sa.Column("operation_number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.LargeBinary(16), nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("packed_values", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("is_new", sa.Boolean(), nullable=False),
        sa.Column("refused", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("operation_number", "attempt", "identity", name=f"pk_{_TABLE}"),
        sqlite_with_rowid=False,
    )
    op.create_index(f"ix_{_TABLE}_table_id_identity", _TABLE, ["table_id", "identity"])


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table(_TABLE)

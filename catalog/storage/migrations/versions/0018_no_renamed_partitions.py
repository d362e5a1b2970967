"""Drop the list of the default folders of renamed partitions, which their locations replace.

The downgrade does not restore it: a new partition with the old values of a renamed one may use its folder.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_TABLE = "calve_renamed_partition"


def upgrade() -> None:
    """Apply the revision."""
    op.drop_table(_TABLE)


def downgrade() -> None:
    """Take the revision back."""
    op.create_table(
        _TABLE,
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.LargeBinary(16), nullable=False),
        sa.Column("partition_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "identity", name=f"pk_{_TABLE}"),
    )

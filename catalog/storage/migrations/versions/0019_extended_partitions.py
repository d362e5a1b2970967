"""Add the id of the partition that an append extends: a partition that was dropped and added again has another id.

Appends that are being published during the upgrade are refused, and can be repeated.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_TABLE = "calve_staged_partition"


def upgrade() -> None:
    """Apply the revision."""
    op.add_column(_TABLE, sa.Column("partition_id", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take the revision back."""
    op.drop_column(_TABLE, "partition_id")

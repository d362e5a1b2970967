"""Add a version to table definitions, with which caches detect changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    with op.batch_alter_table("calve_table") as table:
        table.add_column(sa.Column("version", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take the revision back."""
    with op.batch_alter_table("calve_table") as table:
        table.drop_column("version")

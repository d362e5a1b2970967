"""Record when the latest attempt at each step started, from which rates and durations follow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision; the starts of earlier attempts are unknown."""
    op.add_column("calve_job", sa.Column("started_at_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take the revision back."""
    with op.batch_alter_table("calve_job") as job:
        job.drop_column("started_at_ms")

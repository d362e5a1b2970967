"""Store the requests of Spark jobs, which they read from the catalog instead of a file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_job", sa.Column("request", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take the revision back."""
    op.drop_column("calve_job", "request")

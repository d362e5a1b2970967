"""Add the Spark applications that accept jobs.

The downgrade deletes them: they end when they are idle, and the next job of each starts an application of its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_TABLE = "calve_spark_application"


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("log_path", sa.Text(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", sa.String(512)),
        sa.Column("step", sa.String(64)),
        sa.Column("attempt", sa.BigInteger()),
        sa.Column("script", sa.String(64)),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_TABLE}"),
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table(_TABLE)

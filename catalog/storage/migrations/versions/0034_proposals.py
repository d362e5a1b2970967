"""Keep the latest proposals for each table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_proposal",
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("table_name", sa.String(512), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("dag", sa.String(255), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("proposed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "position", name=op.f("pk_calve_proposal")),
    )


def downgrade() -> None:
    """Take the revision back; the proposals are lost, and the next run of the advisor makes them again."""
    op.drop_table("calve_proposal")

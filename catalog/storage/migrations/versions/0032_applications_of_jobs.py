"""Record the Spark application that runs the latest attempt at each step."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision; the applications of earlier attempts are unknown."""
    op.add_column("calve_job", sa.Column("spark_application", sa.String(128), nullable=True))
    op.add_column("calve_job", sa.Column("spark_ui", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take the revision back."""
    with op.batch_alter_table("calve_job") as job:
        job.drop_column("spark_ui")
        job.drop_column("spark_application")
